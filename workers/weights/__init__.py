"""Reading one rank's slices of a model folder's safetensors."""
