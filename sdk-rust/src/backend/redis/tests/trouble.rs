use super::*;
use crate::error::Code;

#[test]
fn every_reply_that_is_an_error_has_its_code() {
    for (code, text, wanted) in [
        ("ERR", "unknown command 'RES.GCRA', with args beginning with: ", Code::ModuleMissing),
        ("ERR", "limit must be a whole number from 1 to 9, got '0'", Code::InvalidArgument),
        ("WRONGTYPE", "Operation against a key holding the wrong kind of value", Code::InvalidArgument),
        ("PHASE", "this key is used by ONCE", Code::InvalidArgument),
        ("CROSSSLOT", "Keys in request don't hash to the same slot", Code::InvalidArgument),
        ("NOPERM", "this user has no permissions to run the 'res.gcra' command", Code::PermissionDenied),
        ("NOAUTH", "Authentication required.", Code::PermissionDenied),
        ("WRONGPASS", "invalid username-password pair or user is disabled.", Code::PermissionDenied),
        ("DEADLOCK", "x", Code::Deadlock),
        ("SUPERSEDED", "x", Code::Cancelled),
        ("MOVED", "1 10.0.0.1:6379", Code::BackendUnavailable),
        ("ASK", "1 10.0.0.1:6379", Code::BackendUnavailable),
        ("READONLY", "You can't write against a read only replica.", Code::BackendUnavailable),
        ("DENIED", "Redis is running in protected mode because", Code::PermissionDenied),
        ("UNBLOCKED", "force unblock from blocking operation, instance state changed", Code::BackendUnavailable),
        ("UNBLOCKED", "client unblocked via CLIENT UNBLOCK", Code::Cancelled),
        ("TRYAGAIN", "x", Code::BackendUnavailable),
        ("LOADING", "x", Code::BackendUnavailable),
        ("MASTERDOWN", "10.0.0.1", Code::BackendUnavailable),
        ("CLUSTERDOWN", "x", Code::BackendUnavailable),
        ("OOM", "x", Code::BackendUnavailable),
        ("MISCONF", "x", Code::BackendUnavailable),
        ("BUSY", "x", Code::BackendUnavailable),
    ] {
        let error = of_server(code, text).into_error(Some(b"key"));
        assert_eq!(error.code(), wanted, "{code} {text}");
        assert!(!format!("{error}{error:?}").contains("10.0.0.1"), "{code} names an address");
    }
}

#[test]
fn a_deadlock_names_the_lock() {
    assert_eq!(Trouble::Deadlock.into_error(Some(b"orders")), Error::Deadlock { name: "orders".into() });
}

#[test]
fn network_errors_do_not_name_addresses() {
    let io = std::io::Error::new(std::io::ErrorKind::ConnectionReset, "10.0.0.1:6379 went away");
    let error = Trouble::from(RedisError::from(io)).into_error(None);
    assert_eq!(error, Error::BackendUnavailable("the connection broke"));
}
