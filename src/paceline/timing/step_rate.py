"""Rate of an accelerator: the mean duration of a step by its batch size."""

from paceline.settings import NotNegative, Positive, Whole, settings


@settings("cluster.step_rates")
class StepRate:
    """Mean duration of a step with b images: `fixed` + `per_image` * b [seconds].

    `batch_sizes`: least and greatest batch size of what it was fitted to. `rows`: ids of that in
    papers/published.csv.
    """

    fixed: NotNegative
    per_image: Positive
    batch_sizes: tuple[Whole, Whole]
    rows: list[str]

    def seconds(self, batch_size: int) -> float:
        """Return the mean duration of a step with `batch_size` images [seconds]."""
        return self.fixed + self.per_image * batch_size

    def covers(self, batch_size: int) -> bool:
        """Return True if `batch_size` is in the range of what the rate was fitted to."""
        least, greatest = self.batch_sizes
        return least <= batch_size <= greatest
