"""Where the serving certificate comes from: mounted files, or an authority kept in a Secret."""
