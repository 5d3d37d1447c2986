"""Models of each kind of live store, as dictionaries and sorted lists: the truth for tests of real stores."""
