"""Programs that share links, and activities of several of them that go on together: what is between devices."""
