"""A model folder's tokenizer: text to ids, ids to text. Reads `tokenizer.json` and nothing else."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders

from deploy.text.detokenizer import ByteDetokenizer, Detokenizer, WindowDetokenizer
from deploy.text.errors import BadTokenizer
from deploy.text.token_bounds import most_bytes_per_token


def _byte_alphabet() -> dict[str, int]:
    """The printable stand-in of each byte in byte-level vocabularies (published with GPT-2): char -> byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in set(printable)]
    alphabet.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return alphabet


_BYTE_OF_CHAR = _byte_alphabet()


class TextTokenizer:
    """Thread-safe. Special tokens written out in a text become their ids, as the chat templates need it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._is_byte_level = isinstance(tokenizer.decoder, decoders.ByteLevel)
        added = tokenizer.get_added_tokens_decoder()
        self._special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        self._bytes_of_token: dict[int, bytes] = {}
        self._most_bytes_per_token = most_bytes_per_token(tokenizer, frozenset(_BYTE_OF_CHAR))

    @classmethod
    def from_dir(cls, model_dir: Path) -> "TextTokenizer":
        """Read `model_dir/tokenizer.json`. Raises `BadTokenizer`."""
        path = model_dir / "tokenizer.json"
        if not path.is_file():
            raise BadTokenizer(
                f"{path} does not exist; a model folder needs its tokenizer in the tokenizer.json format"
            )
        try:
            return cls(Tokenizer.from_file(str(path)))
        except Exception as error:  # the library raises bare Exception
            raise BadTokenizer(f"{path} is not a readable tokenizer: {error}") from error

    @property
    def num_tokens(self) -> int:
        """Size of the vocabulary, added tokens included."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def token_id(self, token: str) -> int | None:
        return self._tokenizer.token_to_id(token)

    def min_tokens(self, text: str) -> int:
        """As many tokens `text` surely has, without encoding it: 0 for vocabularies of which this cannot be told."""
        if self._most_bytes_per_token is None:
            return 0
        return -(-len(text.encode("utf-8", "surrogatepass")) // self._most_bytes_per_token)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """`add_special_tokens` lets the post processor add what it adds (mostly BOS); templates write their own."""
        return list(self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(token_ids), skip_special_tokens=True))

    def detokenizer(self, context: Sequence[int] = ()) -> Detokenizer:
        """A fresh stream. `context` are the ids before its first one (the prompt)."""
        if self._is_byte_level:
            return ByteDetokenizer(self._token_bytes)
        return WindowDetokenizer(self.decode, context)

    def _token_bytes(self, token_id: int) -> bytes:
        known = self._bytes_of_token.get(token_id)
        if known is None:
            known = self._bytes_of_token[token_id] = self._read_token_bytes(token_id)
        return known

    def _read_token_bytes(self, token_id: int) -> bytes:
        token = None if token_id in self._special_ids else self._tokenizer.id_to_token(token_id)
        if token is None:
            return b""
        try:
            return bytes(_BYTE_OF_CHAR[char] for char in token)
        except KeyError:  # an added token, kept as it is written
            return token.encode()
