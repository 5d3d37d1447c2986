"""What each kind of live store must answer, as dictionaries and sorted lists: the truth for tests of real stores."""
