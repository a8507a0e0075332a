"""Pushes that leave by layer, during backward, in virtual seconds by hand."""

import math

import pytest
from hypothesis import given
