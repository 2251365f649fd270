"""The default model's own tokenizer and template, against transformers."""

from pathlib import Path

import pytest

from deploy.text import ChatTemplate, TextTokenizer

CONVERSATIONS = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "naïve café 😀\n\n  日本語"}],
    [
        {"role": "user", "content": "def f(x):\n\treturn x"},
        {"role": "assistant", "content": " ok "},
        {"role": "user", "content": "<|im_end|> in a text"},
    ],
]


@pytest.mark.model
@pytest.mark.parametrize("messages", CONVERSATIONS, ids=["plain", "system", "turns"])
def test_prompts_and_texts_are_those_of_transformers(messages: list[dict[str, str]], smollm2_dir: Path) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(str(smollm2_dir))
    tokenizer, template = TextTokenizer.from_dir(smollm2_dir), ChatTemplate.from_dir(smollm2_dir)
    assert template is not None
    prompt = template.render(messages)
    assert prompt == theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    token_ids = tokenizer.encode(prompt, add_special_tokens=False)
    assert token_ids == theirs(prompt, add_special_tokens=False).input_ids
    text = messages[-1]["content"]
    assert tokenizer.encode(text, add_special_tokens=True) == theirs(text).input_ids
    stream = tokenizer.detokenizer(())
    pieces = [stream.push(token_id) for token_id in token_ids]
    assert "".join(pieces) + stream.flush() == theirs.decode(
        token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
