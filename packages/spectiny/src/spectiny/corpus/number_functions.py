"""Kinds of functions of whole numbers."""

import math

from spectiny.corpus.function_kind import Kind

_COUNTS: tuple[tuple[object, ...], ...] = ((1,), (2,), (5,), (7,))


def _fib(n: int) -> int:
    return n if n < 2 else _fib(n - 1) + _fib(n - 2)


NUMBER_KINDS: tuple[Kind, ...] = (
    Kind(
        "factorial fact compute_factorial",
        "$n: int",
        "int",
        "<returns|computes> the factorial of $n",
        (
            "if $n <= 1:\n    return 1\nreturn $n * $f($n - 1)",
            "$acc = 1\nfor $i in range(2, $n + 1):\n    $acc *= $i\nreturn $acc",
            "if $n == 0:\n    return 1\nreturn $n * $f($n - 1)",
        ),
        lambda m, n: math.factorial(n),
        _COUNTS,
    ),
    Kind(
        "fibonacci fib nth_fibonacci",
        "$n: int",
        "int",
        "<returns|computes> the <Fibonacci number of index $n|Fibonacci number at $n>",
        (
            "if $n < 2:\n    return $n\nreturn $f($n - 1) + $f($n - 2)",
            "$a, $b = 0, 1\nfor _ in range($n):\n    $a, $b = $b, $a + $b\nreturn $a",
            "if $n <= 1:\n    return $n\nreturn $f($n - 1) + $f($n - 2)",
        ),
        lambda m, n: _fib(n),
        _COUNTS,
    ),
    Kind(
        "sum_to triangular sum_up_to",
        "$n: int",
        "int",
        "<returns|computes> the sum of the numbers from 1 to $n",
        (
            "$acc = 0\nfor $i in range(1, $n + 1):\n    $acc += $i\nreturn $acc",
            "return $n * ($n + 1) // 2",
            "if $n == 0:\n    return 0\nreturn $n + $f($n - 1)",
        ),
        lambda m, n: n * (n + 1) // 2,
        _COUNTS,
    ),
    Kind(
        "power raise_to pow_int",
        "$x: int, $n: int",
        "int",
        "<returns|computes> $x to the power $n",
        (
            "$acc = 1\nfor _ in range($n):\n    $acc *= $x\nreturn $acc",
            "if $n == 0:\n    return 1\nreturn $x * $f($x, $n - 1)",
            "return $x ** $n",
        ),
        lambda m, x, n: x**n,
        ((2, 5), (3, 0)),
    ),
    Kind(
        "is_even even check_even",
        "$n: int",
        "bool",
        "<checks|tells> whether $n is even",
        ("return $n % 2 == 0", "if $n % 2 == 0:\n    return True\nreturn False"),
        lambda m, n: n % 2 == 0,
        _COUNTS,
    ),
    Kind(
        "is_prime prime check_prime",
        "$n: int",
        "bool",
        "<checks|tells> whether $n is <prime|a prime number>",
        (
            "if $n < 2:\n    return False\nfor $i in range(2, $n):\n    if $n % $i == 0:\n        return False\nreturn True",
            "if $n < 2:\n    return False\n$i = 2\nwhile $i * $i <= $n:\n    if $n % $i == 0:\n        return False\n    $i += 1\nreturn True",
        ),
        lambda m, n: n > 1 and all(n % i for i in range(2, n)),
        (*_COUNTS, (9,)),
    ),
    Kind(
        "gcd greatest_divisor common_divisor",
        "$a: int, $b: int",
        "int",
        "<returns|finds> the greatest common divisor of $a and $b",
        (
            "while $b:\n    $a, $b = $b, $a % $b\nreturn $a",
            "if $b == 0:\n    return $a\nreturn $f($b, $a % $b)",
        ),
        lambda m, a, b: max(i for i in range(1, a + 1) if a % i == 0 and b % i == 0),
        ((12, 18), (7, 3)),
    ),
    Kind(
        "divisors find_divisors factors",
        "$n: int",
        "list[int]",
        "<returns|lists> <all |>the divisors of $n",
        (
            "$acc = []\nfor $i in range(1, $n + 1):\n    if $n % $i == 0:\n        $acc.append($i)\nreturn $acc",
            "return [$i for $i in range(1, $n + 1) if $n % $i == 0]",
        ),
        lambda m, n: [i for i in range(1, n + 1) if n % i == 0],
        _COUNTS,
    ),
    Kind(
        "multiples first_multiples list_multiples",
        "$n: int",
        "list[int]",
        "returns the first $n multiples of $m",
        (
            "$acc = []\nfor $i in range(1, $n + 1):\n    $acc.append($i * $m)\nreturn $acc",
            "return [$i * $m for $i in range(1, $n + 1)]",
        ),
        lambda m, n: [i * m for i in range(1, n + 1)],
        _COUNTS,
    ),
    Kind(
        "digit_sum sum_digits add_digits",
        "$n: int",
        "int",
        "<returns|computes> the sum of the digits of $n",
        (
            "$acc = 0\nwhile $n > 0:\n    $acc += $n % 10\n    $n //= 10\nreturn $acc",
            "return sum(int($c) for $c in str($n))",
            "if $n < 10:\n    return $n\nreturn $n % 10 + $f($n // 10)",
        ),
        lambda m, n: sum(map(int, str(n))),
        ((5,), (123,), (90,)),
    ),
    Kind(
        "countdown count_down down_from",
        "$n: int",
        "list[int]",
        "<returns|lists> the numbers from $n down to 1",
        (
            "$acc = []\nwhile $n > 0:\n    $acc.append($n)\n    $n -= 1\nreturn $acc",
            "return list(range($n, 0, -1))",
            "if $n == 0:\n    return []\nreturn [$n] + $f($n - 1)",
        ),
        lambda m, n: list(range(n, 0, -1)),
        _COUNTS,
    ),
    Kind(
        "clamp limit_to bound",
        "$x: int",
        "int",
        "<limits $x to the range from 0 to $m|keeps $x between 0 and $m>",
        ("if $x < 0:\n    return 0\nif $x > $m:\n    return $m\nreturn $x", "return max(0, min($x, $m))"),
        lambda m, x: max(0, min(x, m)),
        ((-3,), (1,), (50,)),
    ),
)
