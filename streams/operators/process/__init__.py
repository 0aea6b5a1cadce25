"""What runs users' processors: their context, their stores, and the checks that say early what would hurt later."""
