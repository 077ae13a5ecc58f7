"""What bscrit can train out of the box."""
