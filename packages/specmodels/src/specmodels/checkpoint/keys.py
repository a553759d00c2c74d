"""The keys of a configuration file, each taken once: what nobody takes is an error and not a silence.

In: the parsed JSON of a `config.json`. Out: typed values by any of their public spellings. It knows nothing of models.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, TypeVar

# Facts about how a file was made or how a Python class wraps it: they change nothing that a model computes.
INFORMATIONAL: Final = frozenset(
    """_attn_implementation _name_or_path add_cross_attention architectures attention_dropout auto_map bos_token_id
    chunk_size_feed_forward classifier_dropout cross_attention_hidden_size decoder_start_token_id dtype eos_token_id
    finetuning_task hidden_dropout hidden_dropout_prob id2label initializer_range is_decoder is_encoder_decoder label2id
    license max_window_layers num_anchors output_attentions output_hidden_states pad_token_id prefix pretraining_tp problem_type
    pruned_heads return_dict sep_token_id task_specific_params tf_legacy_loss tie_encoder_decoder tokenizer_class
    torch_dtype torchscript transformers_version unsloth_fixed use_bfloat16 use_cache""".split()
)

MOST_SIZE: Final = 2**24
"""Of widths, vocabularies and positions: a larger one is no model's, and would exhaust the memory first."""

MOST_LAYERS: Final = 1024
LARGEST: Final = 3.4e38  # single precision holds no more

Default = TypeVar("Default")

_REQUIRED: Final[Any] = object()


class Keys:
    """Reads values by name; a name given several times (at top level and in a section) must say the same each time."""

    def __init__(
        self,
        config: Mapping[str, Any],
        origin: str,
        *,
        sections: Collection[str] = (),
        stated: Mapping[str, Any] | None = None,
    ) -> None:
        """`sections` are inner mappings whose keys count as the file's own; `stated` holds what the caller says of it."""
        self.origin = origin
        self._values: dict[str, Any] = {}
        for section in sections:
            inner = config.get(section)
            if inner is not None:
                self._add(self.mapping_of(inner, section), section + ".")
        self._add({name: value for name, value in config.items() if name not in sections}, "")
        self._add(stated or {}, "stated ")

    def _add(self, values: Mapping[str, Any], place: str) -> None:
        for name, value in values.items():
            if name in self._values and self._values[name] is not None:
                if value is not None and value != self._values[name]:
                    raise ValueError(
                        f"{self.origin}: {name} is {self._values[name]!r} and, as {place}{name}, {value!r}; "
                        "expected one value"
                    )
                continue
            self._values[name] = value

    def mapping_of(self, value: object, name: str) -> Mapping[str, Any]:
        """`value`, checked to be a mapping."""
        if not isinstance(value, Mapping):
            raise ValueError(f"{self.origin}: {name}: got {value!r}, expected a mapping")  # noqa: TRY004 - a user's file
        return value

    def has(self, *names: str) -> bool:
        """Whether any of the names stands in the file with a value other than null; takes nothing."""
        return any(self._values.get(name) is not None for name in names)

    def peek(self, name: str) -> Any:
        """A value that another part takes."""
        return self._values.get(name)

    def take(self, *names: str, default: Any = _REQUIRED) -> Any:
        """The value under any of the spellings; null counts as absent, and two spellings have to agree."""
        found = {name: self._values.pop(name) for name in names if name in self._values}
        given = {name: value for name, value in found.items() if value is not None}
        if not given:
            if default is _REQUIRED:
                raise ValueError(
                    f"{self.origin}: {' or '.join(names)}: missing, expected a value; add it to the file"
                )
            return default
        first, value = next(iter(given.items()))
        for name, other in given.items():
            if other != value:
                raise ValueError(
                    f"{self.origin}: {first} is {value!r} but {name} is {other!r}; expected one value"
                )
        return value

    def _typed(self, names: tuple[str, ...], default: Any, kinds: tuple[type, ...], expected: str) -> Any:
        value = self.take(*names, default=default)
        if value is default and default is not _REQUIRED:
            return value
        # bool is a subclass of int, so it needs a word of its own
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise ValueError(f"{self.origin}: {names[0]}: got {value!r}, expected {expected}")
        return value

    def integer(
        self, *names: str, default: Default = _REQUIRED, least: int = 1, most: int = MOST_SIZE
    ) -> int | Default:
        """An integer of at least `least`."""
        value = self._typed(names, default, (int,), f"an integer of at least {least}")
        if value is not default and value < least:
            raise ValueError(
                f"{self.origin}: {names[0]}: got {value}, expected an integer of at least {least}"
            )
        if value is not default and value > most:
            raise ValueError(f"{self.origin}: {names[0]}: got a larger number, expected at most {most}")
        return value

    def number(self, *names: str, default: Default = _REQUIRED) -> float | Default:
        """A finite number."""
        value = self._typed(names, default, (int, float), "a number")
        if value is not default and not abs(value) <= LARGEST:
            raise ValueError(f"{self.origin}: {names[0]}: got a number out of range, expected a finite one")
        return value if value is default else float(value)

    def flag(self, *names: str, default: Default = _REQUIRED) -> bool | Default:
        """True or false."""
        return self._typed(names, default, (bool,), "true or false")

    def text(self, *names: str, default: Default = _REQUIRED) -> str | Default:
        """A string."""
        return self._typed(names, default, (str,), "a string")

    def integers(self, *names: str, default: Default = _REQUIRED) -> tuple[int, ...] | Default:
        """A list of integers that are 0 or more."""
        values = self._typed(names, default, (list, tuple), "a list of integers")
        if values is default:
            return values
        if not all(isinstance(value, int) and not isinstance(value, bool) and value >= 0 for value in values):
            raise ValueError(f"{self.origin}: {names[0]}: got {values!r}, expected integers of at least 0")
        return tuple(values)

    def only(self, name: str, *allowed: object, reason: str) -> None:
        """Take a key that is understood at some values alone; absent and null are among them."""
        value = self.take(name, default=None)
        if value is not None and value not in allowed:
            expected = " or ".join(map(repr, allowed)) or "no such key"
            raise ValueError(f"{self.origin}: {name}: got {value!r}, expected {expected}; {reason}")

    def left(self) -> dict[str, Any]:
        """What nobody took yet, informational keys and nulls aside."""
        return {
            name: value
            for name, value in self._values.items()
            if name not in INFORMATIONAL and value is not None
        }

    def finish(self) -> None:
        """Raise for keys that nobody took."""
        require_none_left(self.left(), self.origin)


def require_none_left(config: Mapping[str, Any], origin: str) -> None:
    """Raise if any key is left over, naming the keys and their values."""
    if config:
        listed = ", ".join(f"{name} = {value!r}" for name, value in sorted(config.items()))
        raise ValueError(
            f"{origin}: {len(config)} unknown config key(s): {listed}; expected keys that some part understands; "
            "remove them if they are of no consequence"
        )
