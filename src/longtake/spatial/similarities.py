"""Many similarities at once, in double precision on the host, and the straight space beside them: Sim(3) and sim(3).

A tangent has seven numbers, and `exp` takes it onto the group as the exponential of a 4×4 matrix would:

0           3          6   7
│ velocity   │ turn     │ σ │      exp [ σ I + turn^  velocity ]  =  [ e^σ R  V velocity ]
│ vx vy vz   │ ωx ωy ωz │   │          [     0           0     ]     [   0        1      ]

Here turn^ x = turn × x, and V is the mean of e^(σu) exp(u turn^) for u from 0 to 1.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64, Int64
from numpy.typing import NDArray
from torch import Tensor

from longtake.errors import InputError
from longtake.spatial.pose import matrix_from_quaternion, nearest_rotation, quaternion_from_matrix
from longtake.spatial.similarity import Similarity

TANGENT = 7
_SERIES_TERMS = 12
"""Of sine and cosine below an angle of 1: the first one left out is below rounding."""
_FIRST_MOMENT = 2 * _SERIES_TERMS + 24
"""From which moments are computed downwards; what is wrong at first shrinks in each step."""
_BERNOULLI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600)
"""Of even powers in x / (1 - exp(-x)) = 1 + x/2 + ..."""


@dataclass(frozen=True, slots=True)
class Similarities:
    """x ↦ scale · rotation x + translation, for each of several."""

    scale: Float64[np.ndarray, " n"]
    rotation: Float64[np.ndarray, "n 3 3"]
    translation: Float64[np.ndarray, "n 3"]

    @classmethod
    def identity(cls, count: int) -> "Similarities":
        return cls(np.ones(count), np.tile(np.eye(3), (count, 1, 1)), np.zeros((count, 3)))

    @classmethod
    def of(cls, similarities: Iterable[Similarity]) -> "Similarities":
        """In double precision; rotations that were rounded become the nearest that are rotations again."""
        given = list(similarities)
        if not all(one.scale > 0 and bool(one.matrix.isfinite().all()) for one in given):
            raise InputError(
                "Expected similarities of finite numbers and scales above 0, but got others; leave those out, or run "
                "the network in another precision."
            )
        scale = np.array([float(one.scale) for one in given])
        rotations = [nearest_rotation(one.rotation.detach().cpu().double()).numpy() for one in given]
        translations = [one.translation.detach().cpu().double().numpy() for one in given]
        return cls(scale, np.array(rotations).reshape(-1, 3, 3), np.array(translations).reshape(-1, 3))

    def __len__(self) -> int:
        return len(self.scale)

    def __getitem__(self, chosen: Int64[np.ndarray, " chosen"] | slice) -> "Similarities":
        return Similarities(self.scale[chosen], self.rotation[chosen], self.translation[chosen])

    def one(self, index: int) -> Similarity:
        """On the host, in double precision."""
        rotation, translation = torch.from_numpy(self.rotation[index]), torch.from_numpy(self.translation[index])
        return Similarity(torch.tensor(self.scale[index], dtype=torch.float64), rotation.clone(), translation.clone())

    def followed_by(self, *others: "Similarities") -> "Similarities":
        parts = (self, *others)
        return Similarities(
            np.concatenate([part.scale for part in parts]),
            np.concatenate([part.rotation for part in parts]),
            np.concatenate([part.translation for part in parts]),
        )

    def __matmul__(self, inner: "Similarities") -> "Similarities":
        """First the inner ones, then these, one by one."""
        moved = (self.rotation @ inner.translation[:, :, None])[:, :, 0]
        translation = self.scale[:, None] * moved + self.translation
        return Similarities(self.scale * inner.scale, self.rotation @ inner.rotation, translation)

    def inverse(self) -> "Similarities":
        back = self.rotation.transpose(0, 2, 1)
        translation = -(back @ self.translation[:, :, None])[:, :, 0] / self.scale[:, None]
        return Similarities(1 / self.scale, back, translation)

    def products(self) -> "Similarities":
        """The first, the first two, the first three of them, ... as one.

        In rows of about the root of their number, all rows at once: as many steps as two roots.
        """
        count = len(self)
        width = max(1, int(np.ceil(np.sqrt(count))))
        rows = -(-count // width)
        padded = self.followed_by(Similarities.identity(rows * width - count))
        columns = [padded[slice(0, None, width)]]
        for column in range(1, width):
            columns.append(columns[-1] @ padded[slice(column, None, width)])
        before = [Similarities.identity(1)]
        for row in range(rows - 1):
            before.append(before[-1] @ columns[-1][slice(row, row + 1)])
        starts = before[0].followed_by(*before[1:])
        whole = [starts @ column for column in columns]
        return Similarities(
            np.stack([part.scale for part in whole], axis=1).reshape(-1)[:count],
            np.stack([part.rotation for part in whole], axis=1).reshape(-1, 3, 3)[:count],
            np.stack([part.translation for part in whole], axis=1).reshape(-1, 3)[:count],
        )

    def adjoint(self) -> Float64[np.ndarray, "n 7 7"]:
        """self · exp(tangent) · self⁻¹ = exp(adjoint @ tangent)."""
        adjoint = np.zeros((len(self), TANGENT, TANGENT))
        adjoint[:, :3, :3] = self.scale[:, None, None] * self.rotation
        adjoint[:, :3, 3:6] = cross(self.translation) @ self.rotation
        adjoint[:, :3, 6] = -self.translation
        adjoint[:, 3:6, 3:6] = self.rotation
        adjoint[:, 6, 6] = 1
        return adjoint

    def log(self) -> Float64[np.ndarray, "n 7"]:
        """The shortest tangent that `exp` makes these of."""
        quaternion: NDArray[np.float64] = quaternion_from_matrix(torch.from_numpy(self.rotation)).numpy()
        imaginary = np.sqrt((quaternion[:, :3] ** 2).sum(axis=1))
        half = np.arctan2(imaginary, quaternion[:, 3])
        per_imaginary = np.where(imaginary > 0, half / np.where(imaginary > 0, imaginary, 1), 1)
        turn = 2 * per_imaginary[:, None] * quaternion[:, :3]
        sigma = np.log(self.scale)
        mean = _MeanMotion.of(turn, sigma)
        return np.concatenate([mean.unapplied(self.translation, turn), turn, sigma[:, None]], axis=1)


def exp(tangent: Float64[np.ndarray, "n 7"]) -> Similarities:
    """Onto the group."""
    turn, sigma = tangent[:, 3:6], tangent[:, 6]
    half = np.sqrt((turn**2).sum(axis=1)) / 2
    quaternion = np.concatenate([0.5 * np.sinc(half / np.pi)[:, None] * turn, np.cos(half)[:, None]], axis=1)
    rotation: Tensor = matrix_from_quaternion(torch.from_numpy(quaternion))
    translation = _MeanMotion.of(turn, sigma).applied(tangent[:, :3], turn)
    return Similarities(np.exp(sigma), rotation.numpy(), translation)


def bracket(tangent: Float64[np.ndarray, "n 7"]) -> Float64[np.ndarray, "n 7 7"]:
    """The small version of the adjoint: that of exp(tangent) is its matrix exponential."""
    small = np.zeros((len(tangent), TANGENT, TANGENT))
    turn = cross(tangent[:, 3:6])
    small[:, :3, :3] = turn + tangent[:, 6, None, None] * np.eye(3)
    small[:, :3, 3:6] = cross(tangent[:, :3])
    small[:, :3, 6] = -tangent[:, :3]
    small[:, 3:6, 3:6] = turn
    return small


def right_jacobian(tangent: Float64[np.ndarray, "n 7"]) -> Float64[np.ndarray, "n 7 7"]:
    """exp(tangent + d) ≈ exp(tangent) · exp(right_jacobian @ d).

    To the fourth power of the tangent: wrong by 1e-9 for what windows that follow each other disagree by.
    """
    small, identity = bracket(tangent), np.eye(TANGENT)
    jacobian = identity - small / 5
    for divisor in (4, 3, 2):
        jacobian = identity - small @ jacobian / divisor
    return jacobian


def inverse_right_jacobian(tangent: Float64[np.ndarray, "n 7"]) -> Float64[np.ndarray, "n 7 7"]:
    """log(exp(tangent) · exp(d)) ≈ tangent + inverse_right_jacobian @ d, to the eighth power of the tangent."""
    small = bracket(tangent)
    inverse = np.eye(TANGENT) + small / 2
    square = small @ small
    power = np.broadcast_to(np.eye(TANGENT), small.shape)
    for coefficient in _BERNOULLI:
        power = power @ square
        inverse = inverse + coefficient * power
    return inverse


def cross(vectors: Float64[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n 3 3"]:
    """Matrices that take x to vector × x."""
    matrix = np.zeros((len(vectors), 3, 3))
    x, y, z = vectors.T
    matrix[:, 0, 1], matrix[:, 0, 2], matrix[:, 1, 2] = -z, y, -x
    matrix[:, 1, 0], matrix[:, 2, 0], matrix[:, 2, 1] = z, -y, x
    return matrix


@dataclass(frozen=True, slots=True)
class _MeanMotion:
    """V = along · I + first · turn^ + second · turn^², where along, and `across` + i·first·|turn|, are its values."""

    along: Float64[np.ndarray, " n"]
    across: Float64[np.ndarray, " n"]
    first: Float64[np.ndarray, " n"]
    second: Float64[np.ndarray, " n"]
    angle: Float64[np.ndarray, " n"]

    @classmethod
    def of(cls, turn: Float64[np.ndarray, "n 3"], sigma: Float64[np.ndarray, " n"]) -> "_MeanMotion":
        """By series in the angle, where differences would lose digits, else by (e^z - 1) / z with z = σ + i·angle."""
        angle = np.sqrt((turn**2).sum(axis=1))
        moments = _moments(sigma)
        first, second = _series(angle, moments, 1), _series(angle, moments, 2)
        wide = angle >= 1
        z = np.where(wide, sigma + 1j * angle, 1)
        value = np.expm1(z) / z
        safe = np.where(wide, angle, 1)
        first = np.where(wide, value.imag / safe, first)
        second = np.where(wide, (moments[0] - value.real) / safe**2, second)
        return cls(moments[0], moments[0] - second * angle**2, first, second, angle)

    def applied(self, vector: Float64[np.ndarray, "n 3"], turn: Float64[np.ndarray, "n 3"]) -> NDArray[np.float64]:
        once = _cross_product(turn, vector)
        return _combined(self.along, vector, self.first, once, self.second, _cross_product(turn, once))

    def unapplied(self, vector: Float64[np.ndarray, "n 3"], turn: Float64[np.ndarray, "n 3"]) -> NDArray[np.float64]:
        """The vector that `applied` takes to this one."""
        square = self.across**2 + (self.first * self.angle) ** 2
        once = _cross_product(turn, vector)
        twice = _cross_product(turn, once)
        second = (self.first**2 - self.second * self.across) / (self.along * square)
        return _combined(1 / self.along, vector, -self.first / square, once, second, twice)


def _combined(a: NDArray[np.float64], x: NDArray[np.float64], *more: NDArray[np.float64]) -> NDArray[np.float64]:
    b, y, c, z = more
    return a[:, None] * x + b[:, None] * y + c[:, None] * z


def _cross_product(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """As numpy's, which takes longer for few."""
    return a[:, [1, 2, 0]] * b[:, [2, 0, 1]] - a[:, [2, 0, 1]] * b[:, [1, 2, 0]]


def _moments(sigma: Float64[np.ndarray, " n"]) -> list[NDArray[np.float64]]:
    """Integrals of uⁿ e^(σu) for u from 0 to 1 and n = 0, 1, 2, ..., each from the one after it."""
    moments: list[NDArray[np.float64]] = [np.zeros_like(sigma)]
    whole = np.exp(sigma)
    for power in range(_FIRST_MOMENT, 0, -1):
        moments.append((whole - sigma * moments[-1]) / power)
    return moments[::-1]


def _series(angle: Float64[np.ndarray, " n"], moments: list[NDArray[np.float64]], start: int) -> NDArray[np.float64]:
    """Sum of (-angle²)ᵏ / (2k + start)! · moment of 2k + start, for angles up to 1."""
    square = -(np.minimum(angle, 1) ** 2)
    total = np.zeros_like(angle)
    for power in range(start + 2 * (_SERIES_TERMS - 1), 0, -2):
        total = (moments[power] + square * total) / (power * (power - 1) if power > start else 1)
    return total / start
