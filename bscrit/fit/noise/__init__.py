"""The measured gradient noise scale beside B_crit: windows along the runs, averages, forecast, growth law."""
