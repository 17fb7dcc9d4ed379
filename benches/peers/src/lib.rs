//! Nothing: this package only names the peers to build.
