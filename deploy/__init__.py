"""The street door: HTTP, command line, configuration, tokenizer. Text lives here; below it there are only tokens."""
