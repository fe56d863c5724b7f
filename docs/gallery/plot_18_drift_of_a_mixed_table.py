"""
Drift of a table with categories, dates and gaps
================================================

Real tables have text columns, dates and missing values. `taut.wasserstein` takes a data frame, or
``taut wasserstein`` a CSV or parquet file, as it is, and says how each column was used.
"""

import numpy as np
import pandas as pd

import taut
from taut.plotting import COLOURS, Figure

random = np.random.default_rng(0)


def orders(n, mobile, start):
    """Orders of a shop; the share `mobile` by phone. Every other customer states an age."""
    device = random.choice(["desktop", "phone", "tablet"], n, p=[0.9 - mobile, mobile, 0.1])
    return pd.DataFrame(
        {
            "day": pd.to_datetime(start) + pd.to_timedelta(random.integers(0, 28, n), "D"),
            "device": device,
            "amount": random.gamma(2.0, np.where(device == "phone", 15.0, 25.0)).round(2),
            "age": np.where(random.random(n) < 0.5, random.normal(40, 9, n).round(), np.nan),
        }
    )


january = orders(2000, 0.3, "2026-01-01")
february = orders(2000, 0.6, "2026-01-29")
print(february.head(3))

# %%
# The date moves by itself and is left out. Numbers are scaled to standard deviations; two different
# devices are 1 apart, and so are a stated age and a missing one.

result = taut.wasserstein(january, february, encoding={"drop": ["day"]}, seed=0)
print(result)
for note in result.notes:
    print("-", note)

# %%
# The critic's score is high where a row looks like January and low where it looks like February. Its mean
# by device and amount shows what changed: fewer large orders from a desktop, more small ones by phone.

both = pd.concat([january, february])
scores = result.score(both).numpy()


def paint(axes):
    colours = {"desktop": "blue", "phone": "vermilion", "tablet": "green"}
    for device, colour in colours.items():
        chosen = (both["device"] == device).to_numpy()
        amounts = both["amount"][chosen]
        axes.plot(amounts, scores[chosen], ".", color=COLOURS[colour], markersize=2, label=device)
    axes.set(xlabel="amount", ylabel="score: February ... January", xlim=(0, 150))
    axes.legend(markerscale=4)


critic = Figure(paint, alt="The score is lowest for small orders by phone.")
