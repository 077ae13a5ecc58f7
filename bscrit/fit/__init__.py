"""From crossings to S_min, E_min and B_crit, with intervals and caveats."""
