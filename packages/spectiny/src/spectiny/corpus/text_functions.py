"""Kinds of functions over text."""

from spectiny.corpus.function_kind import Kind

_TEXTS: tuple[tuple[object, ...], ...] = (("Hello big World",), ("level",), ("a quick brown fox 42",))

TEXT_KINDS: tuple[Kind, ...] = (
    Kind(
        "reverse_text reverse flip backward",
        "$s: str",
        "str",
        "<reverses|returns the reverse of> the $s",
        (
            "return $s[::-1]",
            '$acc = ""\nfor $c in $s:\n    $acc = $c + $acc\nreturn $acc',
            'return "".join(reversed($s))',
        ),
        lambda m, s: s[::-1],
        _TEXTS,
    ),
    Kind(
        "is_palindrome palindrome check_palindrome",
        "$s: str",
        "bool",
        "<checks|tells> whether the $s <is a palindrome|reads the same backwards>",
        (
            "return $s == $s[::-1]",
            "for $i in range(len($s) // 2):\n    if $s[$i] != $s[-$i - 1]:\n        return False\nreturn True",
            "if len($s) < 2:\n    return True\nif $s[0] != $s[-1]:\n    return False\nreturn $f($s[1:-1])",
        ),
        lambda m, s: s == s[::-1],
        _TEXTS,
    ),
    Kind(
        "count_vowels vowels number_of_vowels",
        "$s: str",
        "int",
        "<counts|returns the number of> vowels in the $s",
        (
            '$acc = 0\nfor $c in $s:\n    if $c in "aeiou":\n        $acc += 1\nreturn $acc',
            'return sum(1 for $c in $s if $c in "aeiou")',
        ),
        lambda m, s: sum(c in "aeiou" for c in s),
        _TEXTS,
    ),
    Kind(
        "remove_vowels drop_vowels without_vowels",
        "$s: str",
        "str",
        "<removes the vowels from the $s|returns the $s without vowels>",
        (
            '$acc = ""\nfor $c in $s:\n    if $c not in "aeiou":\n        $acc += $c\nreturn $acc',
            'return "".join($c for $c in $s if $c not in "aeiou")',
        ),
        lambda m, s: "".join(c for c in s if c not in "aeiou"),
        _TEXTS,
    ),
    Kind(
        "count_words word_count number_of_words",
        "$s: str",
        "int",
        "<counts|returns the number of> words in the $s",
        ("return len($s.split())", "$acc = 0\nfor _ in $s.split():\n    $acc += 1\nreturn $acc"),
        lambda m, s: len(s.split()),
        _TEXTS,
    ),
    Kind(
        "longest_word find_longest longest",
        "$s: str",
        "str",
        "<returns|finds> the longest word <in|of> the $s",
        (
            '$best = ""\nfor $x in $s.split():\n    if len($x) > len($best):\n        $best = $x\nreturn $best',
            "return max($s.split(), key=len)",
        ),
        lambda m, s: max(s.split(), key=len),
        _TEXTS,
    ),
    Kind(
        "capitalize_words title_case capitalize_all",
        "$s: str",
        "str",
        "<capitalizes each word of the $s|returns the $s with each word capitalized>",
        (
            '$acc = []\nfor $x in $s.split():\n    $acc.append($x.capitalize())\nreturn " ".join($acc)',
            'return " ".join($x.capitalize() for $x in $s.split())',
        ),
        lambda m, s: " ".join(w.capitalize() for w in s.split()),
        _TEXTS,
    ),
    Kind(
        "initials first_letters acronym",
        "$s: str",
        "str",
        "<returns|joins> the first letters of the words in the $s",
        (
            '$acc = ""\nfor $x in $s.split():\n    $acc += $x[0]\nreturn $acc',
            'return "".join($x[0] for $x in $s.split())',
        ),
        lambda m, s: "".join(w[0] for w in s.split()),
        _TEXTS,
    ),
    Kind(
        "count_letters letter_counts char_counts",
        "$s: str",
        "dict[str, int]",
        "<counts how often each letter occurs in|returns the number of times each letter is in> the $s",
        (
            "$d = {}\nfor $c in $s:\n    $d[$c] = $d.get($c, 0) + 1\nreturn $d",
            "$d = {}\nfor $c in $s:\n    if $c not in $d:\n        $d[$c] = 0\n    $d[$c] += 1\nreturn $d",
        ),
        lambda m, s: {c: s.count(c) for c in s},
        _TEXTS,
    ),
    Kind(
        "group_by_length words_by_length by_length",
        "$s: str",
        "dict[int, list[str]]",
        "groups the words of the $s by <their |>length",
        (
            "$d = {}\nfor $x in $s.split():\n    $d.setdefault(len($x), []).append($x)\nreturn $d",
            "$d = {}\nfor $x in $s.split():\n    if len($x) not in $d:\n        $d[len($x)] = []\n    $d[len($x)].append($x)\nreturn $d",
        ),
        lambda m, s: {len(w): [v for v in s.split() if len(v) == len(w)] for w in s.split()},
        _TEXTS,
    ),
    Kind(
        "repeat_text repeat_string times_text",
        "$s: str",
        "str",
        "<repeats the $s $m times|returns the $s repeated $m times>",
        ("return $s * $m", '$acc = ""\nfor _ in range($m):\n    $acc += $s\nreturn $acc'),
        lambda m, s: s * m,
        _TEXTS,
    ),
    Kind(
        "shorten truncate cut_text",
        "$s: str",
        "str",
        "<shortens|cuts> the $s to <at most |>$m letters",
        ("return $s[:$m]", "if len($s) <= $m:\n    return $s\nreturn $s[:$m]"),
        lambda m, s: s[:m],
        _TEXTS,
    ),
    Kind(
        "long_words words_longer_than filter_words",
        "$s: str",
        "list[str]",
        "<returns|finds> the words of the $s <with more than $m letters|longer than $m letters>",
        (
            "return [$x for $x in $s.split() if len($x) > $m]",
            "$acc = []\nfor $x in $s.split():\n    if len($x) > $m:\n        $acc.append($x)\nreturn $acc",
        ),
        lambda m, s: [w for w in s.split() if len(w) > m],
        _TEXTS,
    ),
    Kind(
        "only_digits extract_digits keep_digits",
        "$s: str",
        "str",
        "<returns|keeps> only the digits of the $s",
        (
            'return "".join($c for $c in $s if $c.isdigit())',
            '$acc = ""\nfor $c in $s:\n    if $c.isdigit():\n        $acc += $c\nreturn $acc',
        ),
        lambda m, s: "".join(c for c in s if c.isdigit()),
        _TEXTS,
    ),
)
