"""
Monitoring batch after batch, with one false-alarm rate
=======================================================

A pump has three sensors, and every night brings 200 rows. Testing each night at a level of 5 % raises a
false alarm about every twenty nights. A monitor collects *evidence* instead: while nothing has drifted,
the probability that it ever raises an alarm is at most 5 %, however many nights there are.
"""

import numpy as np
import pandas as pd
from scipy.stats import ks_2samp

from taut.plotting import COLOURS, Figure
from taut.sklearn import WassersteinMonitor

rng = np.random.default_rng(0)
NIGHTS, DRIFT_STARTS = 90, 40


def measure(rows=200, wear=0.0):
    """Sensor readings, in standard deviations; wear makes the pump warmer."""
    readings = rng.normal([0.0, 0.0, wear], size=(rows, 3))
    return pd.DataFrame(readings, columns=["flow", "pressure", "temperature"])


reference = measure(2000)

# %%
# Two pumps. The first stays as it is. The second wears out from night 40 on, by a hundredth of a standard
# deviation a night.

wear = 0.01 * np.maximum(0, np.arange(1, NIGHTS + 1) - DRIFT_STARTS)
healthy = [measure() for _ in range(NIGHTS)]
worn = [measure(wear=each) for each in wear]

# %%
# A Kolmogorov-Smirnov test of each sensor, every night, with Bonferroni's correction for three sensors. The
# level holds for each night by itself, but not for all ninety of them together.


def rejects(rows):
    p_values = [ks_2samp(reference[sensor], rows[sensor]).pvalue for sensor in reference]
    return 3 * min(p_values) <= 0.05


false_alarms = [number for number, rows in enumerate(healthy, 1) if rejects(rows)]
print(f"nightly tests reject on {len(false_alarms)} nights of the healthy pump: {false_alarms}")

# %%
# The monitor: `fit` takes the reference, `update` the next batch.


def monitor(batches):
    watch = WassersteinMonitor(false_alarm_rate=0.05).fit(reference)
    return [watch.update(rows) for rows in batches]


calm, drifting = monitor(healthy), monitor(worn)
print(f"healthy pump: {sum(batch.alarm for batch in calm)} alarms in {NIGHTS} nights")

first = next(batch for batch in drifting if batch.alarm)
print(
    f"worn pump: alarm on night {first.name}, {int(first.name) - DRIFT_STARTS} nights into the wear"
)
print(f"most evidence for: {first.changes[0].what}, by {first.changes[0].difference:.2f}")

# %%
# Evidence is a product of fair bets that the sensors have drifted: without drift it rarely grows, and it
# reaches 20 with a probability of at most 1/20. The alarm stays on until a new reference is fitted.


def paint(axes):
    nights = range(1, NIGHTS + 1)
    shown = {"worn pump": (drifting, "vermilion"), "healthy pump": (calm, "blue")}
    for name, (batches, colour) in shown.items():
        evidence = [batch.evidence for batch in batches]
        axes.plot(nights, evidence, color=COLOURS[colour], label=name)
    axes.plot(int(first.name), first.evidence, "o", color=COLOURS["vermilion"], label="first alarm")
    axes.axhline(20, color=COLOURS["black"], linewidth=0.8, linestyle=":")
    axes.annotate("alarm at 20", (1, 20), (6, 4), textcoords="offset points")
    axes.axvline(DRIFT_STARTS, color=COLOURS["black"], linewidth=0.8, linestyle=":")
    axes.annotate("wear begins", (DRIFT_STARTS, 1e5), (4, 0), textcoords="offset points")
    axes.set(yscale="log", xlabel="night", ylabel="evidence of drift", xlim=(1, NIGHTS))
    axes.set_ylim(1e-2, 1e6)
    axes.legend(loc="upper left")


evidence = Figure(
    paint,
    alt="Evidence for the worn pump crosses the alarm level after the wear begins; for the healthy pump it "
    "never does.",
)
