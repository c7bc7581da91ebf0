"""What these tests ask of times that were taken on cores which other programs share: the order of magnitude."""

FACTOR_OF_TWO = 1.0
