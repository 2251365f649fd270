"""What files of parked pages are called under /dev/shm."""

SEGMENT_PREFIX = "parkade-arena-"
BUDGET_PREFIX = "parkade-budget-"
