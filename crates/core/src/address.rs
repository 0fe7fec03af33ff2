//! Classes of IP addresses.
