"""A random generator goes in, a request for one to three Python functions and their source come out."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from spectiny.corpus.phrasing import say, sentence
from spectiny.document import Document

_POOLS = {
    "xs": "values numbers items data nums entries elements".split(),
    "ys": "others second extra more".split(),
    "x": "value number item x entry element".split(),
    "acc": "result total answer out".split(),
    "best": "best found current".split(),
    "n": "n count limit size".split(),
    "i": "i index k step".split(),
    "s": "text word line string sentence".split(),
    "c": "char letter c ch".split(),
    "d": "counts table seen groups".split(),
    "a": "a left first".split(),
    "b": "b right other".split(),
}


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of function: how it is called, described and written, and what it must return."""

    names: str  # function names, apart by spaces
    takes: str  # parameters with types, apart by commas; $names come from the pools, $m is a small number
    gives: str  # return type
    does: str  # description with alternatives, as in "returns the sum of $xs"
    bodies: tuple[str, ...]  # implementations, indented by nothing; the function's own name is $f
    oracle: Callable[..., object]  # (m, *arguments) -> what the function returns
    cases: tuple[tuple[object, ...], ...]  # arguments to try


_LISTS: tuple[tuple[object, ...], ...] = (([3, 8, 1, 12, 5, 7],), ([4],), ([2, 2, 9, -3, 6, 15, 20],))
_TEXTS: tuple[tuple[object, ...], ...] = (("Hello big World",), ("level",), ("a quick brown fox 42",))
_COUNTS: tuple[tuple[object, ...], ...] = ((1,), (2,), (5,), (7,))


def _fib(n: int) -> int:
    return n if n < 2 else _fib(n - 1) + _fib(n - 2)


def _product(numbers: list[int]) -> int:
    result = 1
    for number in numbers:
        result *= number
    return result


KINDS: tuple[Kind, ...] = (
    Kind("total sum_list add_all sum_values", "$xs: list[int]", "int",
         "<returns|computes|gives> the sum of <all|the> $xs",
         ("$acc = 0\nfor $x in $xs:\n    $acc += $x\nreturn $acc", "return sum($xs)",
          "$acc = 0\nfor $i in range(len($xs)):\n    $acc = $acc + $xs[$i]\nreturn $acc"),
         lambda m, v: sum(v), _LISTS),
    Kind("product multiply_all product_of", "$xs: list[int]", "int", "<returns|computes> the product of <all|the> $xs",
         ("$acc = 1\nfor $x in $xs:\n    $acc *= $x\nreturn $acc",
          "if not $xs:\n    return 1\nreturn $xs[0] * $f($xs[1:])"), lambda m, v: _product(v), _LISTS),
    Kind("average mean mean_of average_of", "$xs: list[int]", "float", "<returns|computes> the <mean|average> of the $xs",
         ("if not $xs:\n    return 0.0\nreturn sum($xs) / len($xs)",
          "$acc = 0\nfor $x in $xs:\n    $acc += $x\nreturn $acc / len($xs)"), lambda m, v: sum(v) / len(v), _LISTS),
    Kind("largest find_max maximum biggest", "$xs: list[int]", "int", "<returns|finds> the <largest|biggest> of the $xs",
         ("$best = $xs[0]\nfor $x in $xs:\n    if $x > $best:\n        $best = $x\nreturn $best", "return max($xs)",
          "if not $xs:\n    raise ValueError(\"$xs is empty\")\nreturn max($xs)"), lambda m, v: max(v), _LISTS),
    Kind("smallest find_min minimum lowest", "$xs: list[int]", "int", "<returns|finds> the <smallest|lowest> of the $xs",
         ("$best = $xs[0]\nfor $x in $xs[1:]:\n    if $x < $best:\n        $best = $x\nreturn $best", "return min($xs)"),
         lambda m, v: min(v), _LISTS),
    Kind("keep_even evens only_even even_numbers", "$xs: list[int]", "list[int]",
         "<returns|keeps> <only |>the even $xs",
         ("$acc = []\nfor $x in $xs:\n    if $x % 2 == 0:\n        $acc.append($x)\nreturn $acc",
          "return [$x for $x in $xs if $x % 2 == 0]", "return list(filter(lambda $x: $x % 2 == 0, $xs))"),
         lambda m, v: [x for x in v if x % 2 == 0], _LISTS),
    Kind("keep_odd odds only_odd odd_numbers", "$xs: list[int]", "list[int]", "<returns|keeps> <only |>the odd $xs",
         ("$acc = []\nfor $x in $xs:\n    if $x % 2 == 1:\n        $acc.append($x)\nreturn $acc",
          "return [$x for $x in $xs if $x % 2 == 1]", "return [$x for $x in $xs if $x % 2 != 0]"),
         lambda m, v: [x for x in v if x % 2 == 1], _LISTS),
    Kind("keep_above above larger_than filter_above", "$xs: list[int]", "list[int]",
         "<returns|keeps> the $xs that are <above|larger than|greater than> $m",
         ("$acc = []\nfor $x in $xs:\n    if $x > $m:\n        $acc.append($x)\nreturn $acc",
          "return [$x for $x in $xs if $x > $m]"), lambda m, v: [x for x in v if x > m], _LISTS),
    Kind("keep_below below smaller_than filter_below", "$xs: list[int]", "list[int]",
         "<returns|keeps> the $xs that are <below|smaller than|less than> $m",
         ("$acc = []\nfor $x in $xs:\n    if $x < $m:\n        $acc.append($x)\nreturn $acc",
          "return [$x for $x in $xs if $x < $m]"), lambda m, v: [x for x in v if x < m], _LISTS),
    Kind("count_above how_many_above count_larger", "$xs: list[int]", "int",
         "<counts|returns the number of> $xs <above|larger than> $m",
         ("$acc = 0\nfor $x in $xs:\n    if $x > $m:\n        $acc += 1\nreturn $acc",
          "return sum(1 for $x in $xs if $x > $m)", "return len([$x for $x in $xs if $x > $m])"),
         lambda m, v: sum(x > m for x in v), _LISTS),
    Kind("count_even number_of_evens even_count", "$xs: list[int]", "int", "<counts|returns the number of> even $xs",
         ("$acc = 0\nfor $x in $xs:\n    if $x % 2 == 0:\n        $acc += 1\nreturn $acc",
          "return sum(1 for $x in $xs if $x % 2 == 0)"), lambda m, v: sum(x % 2 == 0 for x in v), _LISTS),
    Kind("scale multiply_each times scale_all", "$xs: list[int]", "list[int]",
         "<multiplies each of the $xs by $m|returns the $xs multiplied by $m>",
         ("$acc = []\nfor $x in $xs:\n    $acc.append($x * $m)\nreturn $acc", "return [$x * $m for $x in $xs]",
          "return list(map(lambda $x: $x * $m, $xs))"), lambda m, v: [x * m for x in v], _LISTS),
    Kind("shift add_to_each increase add_number", "$xs: list[int]", "list[int]", "<adds $m to each of the $xs|returns the $xs with $m added>",
         ("$acc = []\nfor $x in $xs:\n    $acc.append($x + $m)\nreturn $acc", "return [$x + $m for $x in $xs]"),
         lambda m, v: [x + m for x in v], _LISTS),
    Kind("squares square_all squared", "$xs: list[int]", "list[int]", "returns the squares of the $xs",
         ("$acc = []\nfor $x in $xs:\n    $acc.append($x * $x)\nreturn $acc", "return [$x ** 2 for $x in $xs]",
          "return [$x * $x for $x in $xs]"), lambda m, v: [x * x for x in v], _LISTS),
    Kind("sum_squares sum_of_squares square_sum", "$xs: list[int]", "int", "<returns|computes> the sum of the squares of the $xs",
         ("$acc = 0\nfor $x in $xs:\n    $acc += $x * $x\nreturn $acc", "return sum($x * $x for $x in $xs)",
          "return sum($x ** 2 for $x in $xs)"), lambda m, v: sum(x * x for x in v), _LISTS),
    Kind("running_total cumulative running_sum", "$xs: list[int]", "list[int]", "returns the running <totals|sums> of the $xs",
         ("$acc = []\n$best = 0\nfor $x in $xs:\n    $best += $x\n    $acc.append($best)\nreturn $acc",
          "$acc = []\nfor $i in range(len($xs)):\n    $acc.append(sum($xs[: $i + 1]))\nreturn $acc"),
         lambda m, v: [sum(v[: i + 1]) for i in range(len(v))], _LISTS),
    Kind("unique remove_duplicates distinct", "$xs: list[int]", "list[int]", "<removes duplicates from the $xs|returns the $xs without duplicates>",
         ("$acc = []\nfor $x in $xs:\n    if $x not in $acc:\n        $acc.append($x)\nreturn $acc",
          "$d = set()\n$acc = []\nfor $x in $xs:\n    if $x not in $d:\n        $d.add($x)\n        $acc.append($x)\nreturn $acc",
          "return list(dict.fromkeys($xs))"), lambda m, v: list(dict.fromkeys(v)), _LISTS),
    Kind("reverse_list reversed_copy backwards", "$xs: list[int]", "list[int]", "returns the $xs in reverse order",
         ("return $xs[::-1]", "$acc = []\nfor $x in $xs:\n    $acc.insert(0, $x)\nreturn $acc", "return list(reversed($xs))"),
         lambda m, v: v[::-1], _LISTS),
    Kind("second_largest runner_up second_best", "$xs: list[int]", "int", "<returns|finds> the second largest of the <different |>$xs",
         ("$acc = sorted(set($xs))\nif len($acc) < 2:\n    return $acc[0]\nreturn $acc[-2]",),
         lambda m, v: sorted(set(v))[-2] if len(set(v)) > 1 else v[0], _LISTS),
    Kind("is_sorted in_order check_sorted", "$xs: list[int]", "bool", "<checks|tells> whether the $xs are <sorted|in order>",
         ("for $i in range(len($xs) - 1):\n    if $xs[$i] > $xs[$i + 1]:\n        return False\nreturn True",
          "return $xs == sorted($xs)", "return all($a <= $b for $a, $b in zip($xs, $xs[1:]))"),
         lambda m, v: v == sorted(v), (*_LISTS, ([1, 2, 3],))),
    Kind("contains has_value is_member", "$xs: list[int], $x: int", "bool", "<checks|tells> whether $x is <one of|in> the $xs",
         ("for $i in range(len($xs)):\n    if $xs[$i] == $x:\n        return True\nreturn False", "return $x in $xs",
          "for $best in $xs:\n    if $best == $x:\n        return True\nreturn False"),
         lambda m, v, x: x in v, (([1, 2], 2), ([3], 4))),
    Kind("position find_index index_of", "$xs: list[int], $x: int", "int", "returns the <index|position> of $x in the $xs<, or -1| or -1>",
         ("for $i in range(len($xs)):\n    if $xs[$i] == $x:\n        return $i\nreturn -1",
          "for $i, $best in enumerate($xs):\n    if $best == $x:\n        return $i\nreturn -1",
          "if $x in $xs:\n    return $xs.index($x)\nreturn -1"),
         lambda m, v, x: v.index(x) if x in v else -1, (([1, 2], 2), ([3], 4))),
    Kind("count_value occurrences count_of", "$xs: list[int], $x: int", "int", "<counts how often $x occurs in the $xs|returns how many times $x is in the $xs>",
         ("$acc = 0\nfor $best in $xs:\n    if $best == $x:\n        $acc += 1\nreturn $acc", "return $xs.count($x)"),
         lambda m, v, x: v.count(x), (([1, 2, 2], 2), ([3], 4))),
    Kind("merge combine join_lists", "$xs: list[int], $ys: list[int]", "list[int]", "<joins $xs and $ys|puts $xs and $ys together> in <sorted|rising> order",
         ("return sorted($xs + $ys)", "$acc = $xs + $ys\n$acc.sort()\nreturn $acc",
          "$acc = list($xs)\nfor $x in $ys:\n    $acc.append($x)\nreturn sorted($acc)"),
         lambda m, v, w: sorted(v + w), (([3, 1], [2]), ([], [5]))),
    Kind("common shared intersection", "$xs: list[int], $ys: list[int]", "list[int]", "returns the $xs that are also in $ys",
         ("return [$x for $x in $xs if $x in $ys]", "$acc = []\nfor $x in $xs:\n    if $x in $ys:\n        $acc.append($x)\nreturn $acc"),
         lambda m, v, w: [x for x in v if x in w], (([3, 1], [1, 2]), ([], [5]))),
    Kind("dot dot_product inner", "$xs: list[int], $ys: list[int]", "int", "<returns|computes> the dot product of $xs and $ys",
         ("$acc = 0\nfor $a, $b in zip($xs, $ys):\n    $acc += $a * $b\nreturn $acc",
          "return sum($a * $b for $a, $b in zip($xs, $ys))",
          "$acc = 0\nfor $i in range(len($xs)):\n    $acc += $xs[$i] * $ys[$i]\nreturn $acc"),
         lambda m, v, w: sum(a * b for a, b in zip(v, w, strict=True)), (([3, 1], [1, 2]), ([2], [5]))),
    Kind("chunks split_list in_groups", "$xs: list[int]", "list[list[int]]", "<splits|cuts> the $xs into <groups|pieces> of $m",
         ("$acc = []\nfor $i in range(0, len($xs), $m):\n    $acc.append($xs[$i : $i + $m])\nreturn $acc",
          "return [$xs[$i : $i + $m] for $i in range(0, len($xs), $m)]"),
         lambda m, v: [v[i : i + m] for i in range(0, len(v), m)], _LISTS),
    Kind("factorial fact compute_factorial", "$n: int", "int", "<returns|computes> the factorial of $n",
         ("if $n <= 1:\n    return 1\nreturn $n * $f($n - 1)",
          "$acc = 1\nfor $i in range(2, $n + 1):\n    $acc *= $i\nreturn $acc",
          "if $n == 0:\n    return 1\nreturn $n * $f($n - 1)"), lambda m, n: _product(list(range(1, n + 1))), _COUNTS),
    Kind("fibonacci fib nth_fibonacci", "$n: int", "int", "<returns|computes> the <Fibonacci number of index $n|Fibonacci number at $n>",
         ("if $n < 2:\n    return $n\nreturn $f($n - 1) + $f($n - 2)",
          "$a, $b = 0, 1\nfor _ in range($n):\n    $a, $b = $b, $a + $b\nreturn $a",
          "if $n <= 1:\n    return $n\nreturn $f($n - 1) + $f($n - 2)"), lambda m, n: _fib(n), _COUNTS),
    Kind("sum_to triangular sum_up_to", "$n: int", "int", "<returns|computes> the sum of the numbers from 1 to $n",
         ("$acc = 0\nfor $i in range(1, $n + 1):\n    $acc += $i\nreturn $acc", "return $n * ($n + 1) // 2",
          "if $n == 0:\n    return 0\nreturn $n + $f($n - 1)"), lambda m, n: n * (n + 1) // 2, _COUNTS),
    Kind("power raise_to pow_int", "$x: int, $n: int", "int", "<returns|computes> $x to the power $n",
         ("$acc = 1\nfor _ in range($n):\n    $acc *= $x\nreturn $acc", "if $n == 0:\n    return 1\nreturn $x * $f($x, $n - 1)",
          "return $x ** $n"), lambda m, x, n: x**n, ((2, 5), (3, 0))),
    Kind("is_even even check_even", "$n: int", "bool", "<checks|tells> whether $n is even",
         ("return $n % 2 == 0", "if $n % 2 == 0:\n    return True\nreturn False"), lambda m, n: n % 2 == 0, _COUNTS),
    Kind("is_prime prime check_prime", "$n: int", "bool", "<checks|tells> whether $n is <prime|a prime number>",
         ("if $n < 2:\n    return False\nfor $i in range(2, $n):\n    if $n % $i == 0:\n        return False\nreturn True",
          "if $n < 2:\n    return False\n$i = 2\nwhile $i * $i <= $n:\n    if $n % $i == 0:\n        return False\n    $i += 1\nreturn True"),
         lambda m, n: n > 1 and all(n % i for i in range(2, n)), (*_COUNTS, (9,))),
    Kind("gcd greatest_divisor common_divisor", "$a: int, $b: int", "int", "<returns|finds> the greatest common divisor of $a and $b",
         ("while $b:\n    $a, $b = $b, $a % $b\nreturn $a", "if $b == 0:\n    return $a\nreturn $f($b, $a % $b)"),
         lambda m, a, b: max(i for i in range(1, a + 1) if a % i == 0 and b % i == 0), ((12, 18), (7, 3))),
    Kind("divisors find_divisors factors", "$n: int", "list[int]", "<returns|lists> <all |>the divisors of $n",
         ("$acc = []\nfor $i in range(1, $n + 1):\n    if $n % $i == 0:\n        $acc.append($i)\nreturn $acc",
          "return [$i for $i in range(1, $n + 1) if $n % $i == 0]"), lambda m, n: [i for i in range(1, n + 1) if n % i == 0], _COUNTS),
    Kind("multiples first_multiples list_multiples", "$n: int", "list[int]", "returns the first $n multiples of $m",
         ("$acc = []\nfor $i in range(1, $n + 1):\n    $acc.append($i * $m)\nreturn $acc",
          "return [$i * $m for $i in range(1, $n + 1)]"), lambda m, n: [i * m for i in range(1, n + 1)], _COUNTS),
    Kind("digit_sum sum_digits add_digits", "$n: int", "int", "<returns|computes> the sum of the digits of $n",
         ("$acc = 0\nwhile $n > 0:\n    $acc += $n % 10\n    $n //= 10\nreturn $acc", "return sum(int($c) for $c in str($n))",
          "if $n < 10:\n    return $n\nreturn $n % 10 + $f($n // 10)"), lambda m, n: sum(map(int, str(n))), ((5,), (123,), (90,))),
    Kind("countdown count_down down_from", "$n: int", "list[int]", "<returns|lists> the numbers from $n down to 1",
         ("$acc = []\nwhile $n > 0:\n    $acc.append($n)\n    $n -= 1\nreturn $acc", "return list(range($n, 0, -1))",
          "if $n == 0:\n    return []\nreturn [$n] + $f($n - 1)"), lambda m, n: list(range(n, 0, -1)), _COUNTS),
    Kind("clamp limit_to bound", "$x: int", "int", "<limits $x to the range from 0 to $m|keeps $x between 0 and $m>",
         ("if $x < 0:\n    return 0\nif $x > $m:\n    return $m\nreturn $x", "return max(0, min($x, $m))"),
         lambda m, x: max(0, min(x, m)), ((-3,), (1,), (50,))),
    Kind("reverse_text reverse flip backward", "$s: str", "str", "<reverses|returns the reverse of> the $s",
         ("return $s[::-1]", "$acc = \"\"\nfor $c in $s:\n    $acc = $c + $acc\nreturn $acc", "return \"\".join(reversed($s))"),
         lambda m, s: s[::-1], _TEXTS),
    Kind("is_palindrome palindrome check_palindrome", "$s: str", "bool", "<checks|tells> whether the $s <is a palindrome|reads the same backwards>",
         ("return $s == $s[::-1]", "for $i in range(len($s) // 2):\n    if $s[$i] != $s[-$i - 1]:\n        return False\nreturn True",
          "if len($s) < 2:\n    return True\nif $s[0] != $s[-1]:\n    return False\nreturn $f($s[1:-1])"), lambda m, s: s == s[::-1], _TEXTS),
    Kind("count_vowels vowels number_of_vowels", "$s: str", "int", "<counts|returns the number of> vowels in the $s",
         ("$acc = 0\nfor $c in $s:\n    if $c in \"aeiou\":\n        $acc += 1\nreturn $acc",
          "return sum(1 for $c in $s if $c in \"aeiou\")"), lambda m, s: sum(c in "aeiou" for c in s), _TEXTS),
    Kind("remove_vowels drop_vowels without_vowels", "$s: str", "str", "<removes the vowels from the $s|returns the $s without vowels>",
         ("$acc = \"\"\nfor $c in $s:\n    if $c not in \"aeiou\":\n        $acc += $c\nreturn $acc",
          "return \"\".join($c for $c in $s if $c not in \"aeiou\")"), lambda m, s: "".join(c for c in s if c not in "aeiou"), _TEXTS),
    Kind("count_words word_count number_of_words", "$s: str", "int", "<counts|returns the number of> words in the $s",
         ("return len($s.split())", "$acc = 0\nfor _ in $s.split():\n    $acc += 1\nreturn $acc"), lambda m, s: len(s.split()), _TEXTS),
    Kind("longest_word find_longest longest", "$s: str", "str", "<returns|finds> the longest word <in|of> the $s",
         ("$best = \"\"\nfor $x in $s.split():\n    if len($x) > len($best):\n        $best = $x\nreturn $best",
          "return max($s.split(), key=len)"), lambda m, s: max(s.split(), key=len), _TEXTS),
    Kind("capitalize_words title_case capitalize_all", "$s: str", "str", "<capitalizes each word of the $s|returns the $s with each word capitalized>",
         ("$acc = []\nfor $x in $s.split():\n    $acc.append($x.capitalize())\nreturn \" \".join($acc)",
          "return \" \".join($x.capitalize() for $x in $s.split())"), lambda m, s: " ".join(w.capitalize() for w in s.split()), _TEXTS),
    Kind("initials first_letters acronym", "$s: str", "str", "<returns|joins> the first letters of the words in the $s",
         ("$acc = \"\"\nfor $x in $s.split():\n    $acc += $x[0]\nreturn $acc", "return \"\".join($x[0] for $x in $s.split())"),
         lambda m, s: "".join(w[0] for w in s.split()), _TEXTS),
    Kind("count_letters letter_counts char_counts", "$s: str", "dict[str, int]", "<counts how often each letter occurs in|returns the number of times each letter is in> the $s",
         ("$d = {}\nfor $c in $s:\n    $d[$c] = $d.get($c, 0) + 1\nreturn $d",
          "$d = {}\nfor $c in $s:\n    if $c not in $d:\n        $d[$c] = 0\n    $d[$c] += 1\nreturn $d"),
         lambda m, s: {c: s.count(c) for c in s}, _TEXTS),
    Kind("group_by_length words_by_length by_length", "$s: str", "dict[int, list[str]]", "groups the words of the $s by <their |>length",
         ("$d = {}\nfor $x in $s.split():\n    $d.setdefault(len($x), []).append($x)\nreturn $d",
          "$d = {}\nfor $x in $s.split():\n    if len($x) not in $d:\n        $d[len($x)] = []\n    $d[len($x)].append($x)\nreturn $d"),
         lambda m, s: {len(w): [v for v in s.split() if len(v) == len(w)] for w in s.split()}, _TEXTS),
    Kind("repeat_text repeat_string times_text", "$s: str", "str", "<repeats the $s $m times|returns the $s repeated $m times>",
         ("return $s * $m", "$acc = \"\"\nfor _ in range($m):\n    $acc += $s\nreturn $acc"), lambda m, s: s * m, _TEXTS),
    Kind("shorten truncate cut_text", "$s: str", "str", "<shortens|cuts> the $s to <at most |>$m letters",
         ("return $s[:$m]", "if len($s) <= $m:\n    return $s\nreturn $s[:$m]"), lambda m, s: s[:m], _TEXTS),
    Kind("long_words words_longer_than filter_words", "$s: str", "list[str]", "<returns|finds> the words of the $s <with more than $m letters|longer than $m letters>",
         ("return [$x for $x in $s.split() if len($x) > $m]",
          "$acc = []\nfor $x in $s.split():\n    if len($x) > $m:\n        $acc.append($x)\nreturn $acc"),
         lambda m, s: [w for w in s.split() if len(w) > m], _TEXTS),
    Kind("only_digits extract_digits keep_digits", "$s: str", "str", "<returns|keeps> only the digits of the $s",
         ("return \"\".join($c for $c in $s if $c.isdigit())",
          "$acc = \"\"\nfor $c in $s:\n    if $c.isdigit():\n        $acc += $c\nreturn $acc"), lambda m, s: "".join(c for c in s if c.isdigit()), _TEXTS),
)  # fmt: skip
"""Every kind of function of the code domain."""

_PREFIXES = ("", "", "", "", "", "get_", "compute_", "my_")
_REQUESTS = (
    "<|please >write a <Python |>function <named|called> `$f` that $does.",
    "<write|implement|define> `$f`, a <Python |>function that $does.",
    "<I need|give me|can you write> a <Python |short |>function `$f(<$params|$params>)` that $does<.|, please.>",
    "<in Python, |>how do I write a function `$f` that $does?",
    "<create|make> a function that $does. <call|name> it `$f`.",
)


@dataclass(frozen=True, slots=True)
class Function:
    """A function made from a kind: its source, and what is needed to ask for it and to check it."""

    kind: Kind
    name: str
    number: int  # what $m stands for
    head: str  # the def line
    body: str  # the indented rest
    asks: str  # what it does, with identifiers filled in, as in "returns the sum of the values"


def function(rng: random.Random, kind: Kind, typed: bool, documented: bool) -> Function:
    """Return a random function of a kind, with type hints and a docstring where asked for."""
    fields: dict[str, object] = {key: rng.choice(pool) for key, pool in _POOLS.items()}
    number = rng.randint(2, 12)
    name = rng.choice(_PREFIXES) + rng.choice(kind.names.split())
    fields.update(f=name, m=number)
    takes = say(rng, kind.takes, fields).split(", ")
    params = ", ".join(takes) if typed else ", ".join(part.split(":")[0] for part in takes)
    head = f"def {name}({params}){f' -> {kind.gives}' if typed else ''}:"
    lines = say(rng, rng.choice(kind.bodies), fields).split("\n")
    if documented:
        lines.insert(0, f'"""{sentence(rng, kind.does, fields)}."""')
    body = "\n".join(f"    {line}" for line in lines)
    return Function(kind, name, number, head, body, say(rng, kind.does, fields))


def function_request(rng: random.Random) -> Document:
    """Return a request for one to three functions, or the first line of one, with the source as the answer."""
    form = rng.random()
    typed = rng.random() < 0.4
    documented = rng.random() < 0.5
    if form < 0.22:  # only the first line is given
        one = function(rng, rng.choice(KINDS), typed, documented)
        return Document("code", one.head, one.body)
    kinds = rng.sample(KINDS, 1 if form < 0.4 else 2 if form < 0.7 else 3)
    made = [function(rng, kind, typed, documented) for kind in kinds]
    first = made[0]
    fields = {"f": first.name, "does": first.asks, "params": first.head.split("(", 1)[1].rsplit(")", 1)[0]}
    prompt = sentence(rng, rng.choice(_REQUESTS), fields)
    for one in made[1:]:
        more = "<then|after it,|also> <add|write> <a function |>`$f`, which $does."
        prompt += " " + sentence(rng, more, {"f": one.name, "does": one.asks})
    if typed:
        prompt += say(rng, " <Use|With|Add> type hints.")
    if documented:
        prompt += say(rng, " <Add a docstring.|Write a docstring.|It needs a docstring.>")
    return Document("code", prompt, "\n\n\n".join(f"{one.head}\n{one.body}" for one in made))
