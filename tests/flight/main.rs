//! Work that is done once, and values that are loaded once, on a real server.
