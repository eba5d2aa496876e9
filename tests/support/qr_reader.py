"""Reads a QR code of versions 1 to 10 and level M from its modules; what is damaged is an error, not repaired."""

from collections.abc import Sequence

import numpy as np

BLOCKS = {
    1: (10, [16]),
    2: (16, [28]),
    3: (26, [44]),
    4: (18, [32] * 2),
    5: (24, [43] * 2),
    6: (16, [27] * 4),
    7: (18, [31] * 4),
    8: (22, [38] * 2 + [39] * 2),
    9: (22, [36] * 3 + [37] * 2),
    10: (26, [43] * 4 + [44]),
}
CENTRES = {1: [], 2: [18], 3: [22], 4: [26], 5: [30], 6: [34], 7: [22, 38], 8: [24, 42], 9: [26, 46], 10: [28, 50]}
FORMATS = {
    # Level M with each mask, as the standard's table of format information has them.
    0b101010000010010: 0,
    0b101000100100101: 1,
    0b101111001111100: 2,
    0b101101101001011: 3,
    0b100010111111001: 4,
    0b100000011001110: 5,
    0b100111110010111: 6,
    0b100101010100000: 7,
}


def read_qr(modules: Sequence[Sequence[bool]]) -> str:
    dark = np.array(modules, dtype=int)
    version = (len(dark) - 17) // 4
    assert dark.shape == (17 + 4 * version,) * 2
    bits = [*dark[8, :6], dark[8, 7], dark[8, 8], dark[7, 8], *dark[5::-1, 8]]
    mask = FORMATS[int("".join(map(str, bits)), 2)]
    words = _words(dark, version, mask)
    num_checks, sizes = BLOCKS[version]
    data = []
    for block in _blocks(words, num_checks, sizes):
        assert all(_value_at(block, root) == 0 for root in _roots(num_checks)), "error correction does not fit"
        data += block[:-num_checks]
    return _text(data, version)


def _words(dark: np.ndarray, version: int, mask: int) -> list[int]:
    free, size = ~_fixed(version), len(dark)
    bits, is_up = [], True
    for right in [*range(size - 1, 6, -2), *range(5, 0, -2)]:
        for row in range(size - 1, -1, -1) if is_up else range(size):
            bits += [int(dark[row, at]) ^ _mask(mask, row, at) for at in (right, right - 1) if free[row, at]]
        is_up = not is_up
    return [int("".join(map(str, bits[at : at + 8])), 2) for at in range(0, len(bits) - 7, 8)]


def _mask(mask: int, i: int, j: int) -> int:
    rules = [(i + j) % 2, i % 2, j % 3, (i + j) % 3, (i // 2 + j // 3) % 2, i * j % 2 + i * j % 3]
    rules += [(i * j % 2 + i * j % 3) % 2, ((i + j) % 2 + i * j % 3) % 2]
    return int(rules[mask] == 0)


def _fixed(version: int) -> np.ndarray:
    size = 17 + 4 * version
    fixed = np.zeros((size, size), dtype=bool)
    fixed[:9, :9] = fixed[:9, -8:] = fixed[-8:, :9] = True
    fixed[6] = fixed[:, 6] = True
    for row in [6, *CENTRES[version]]:
        for at in [6, *CENTRES[version]]:
            if (row, at) not in ((6, 6), (6, size - 7), (size - 7, 6)):
                fixed[row - 2 : row + 3, at - 2 : at + 3] = True
    if version >= 7:
        fixed[:6, -11:-8] = fixed[-11:-8, :6] = True
    return fixed


def _blocks(words: list[int], num_checks: int, sizes: list[int]) -> list[list[int]]:
    places = [(at, block) for at in range(max(sizes)) for block, size in enumerate(sizes) if at < size]
    blocks: list[list[int]] = [[] for _ in sizes]
    for word, (_, block) in zip(words, places, strict=False):
        blocks[block].append(word)
    for at, word in enumerate(words[len(places) : len(places) + num_checks * len(sizes)]):
        blocks[at % len(sizes)].append(word)
    return blocks


def _times(a: int, b: int) -> int:
    product = 0
    while b:
        product ^= a if b & 1 else 0
        a, b = (a << 1) ^ (0x11D if a & 0x80 else 0), b >> 1
    return product


def _roots(count: int) -> list[int]:
    roots = [1]
    while len(roots) < count:
        roots.append(_times(roots[-1], 2))
    return roots


def _value_at(polynomial: list[int], x: int) -> int:
    value = 0
    for word in polynomial:
        value = _times(value, x) ^ word
    return value


def _text(data: list[int], version: int) -> str:
    bits = "".join(f"{word:08b}" for word in data)
    assert bits[:4] == "0100", "not bytes"
    start = 4 + (8 if version < 10 else 16)
    count = int(bits[4:start], 2)
    return bytes(int(bits[start + 8 * at : start + 8 * at + 8], 2) for at in range(count)).decode()
