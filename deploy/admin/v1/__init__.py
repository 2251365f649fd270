"""Version 1 of the administration interface: `admin.proto` is its documentation, the rest is generated from it."""
