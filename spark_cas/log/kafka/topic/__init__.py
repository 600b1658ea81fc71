"""Topics of the brokers: settings, creation, and coordinators."""
