//! Both modules in one server: the name belongs to the first.

use resil_harness::{Options, Server, module_path};

use crate::engine::resp::Client;
use crate::engine::server_state::must;
use crate::redis_cell::{self, module_file, throttle};

/// redis-cell's command leaves strings, ours does not.
fn assert_throttle_is_theirs(client: &mut Client) {
    throttle(client, "key 9 10 36000");
    assert_eq!(must(client, "TYPE key").text(), "string");
    must(client, "RES.GCRA other 10 1h");
    assert_eq!(must(client, "TYPE other").text(), "resil-gcr");
}

#[test]
fn redis_cell_keeps_its_command_when_it_was_loaded_first() {
    let Some(theirs) = redis_cell::options() else { return };
    let server = Server::start(theirs.also_load(module_path(), Vec::<String>::new()));
    assert_throttle_is_theirs(&mut Client::new(&server));
    assert!(server.log().contains("CL.THROTTLE belongs to another module"), "the log says so");
}

#[test]
fn redis_cell_loads_after_us_where_allowed() {
    if redis_cell::options().is_none() {
        return;
    }
    let ours = Options::default().module_args(["cell-compat", "no"]);
    let server = Server::start(ours.also_load(module_file(), Vec::<String>::new()));
    assert_throttle_is_theirs(&mut Client::new(&server));
}

#[test]
fn the_command_stays_ours_when_redis_cell_comes_later() {
    if redis_cell::options().is_none() {
        return;
    }
    let server = Server::fresh();
    let mut client = Client::new(&server);
    // It does not ask whether its command could be registered: it is loaded, and has none.
    client.typed(&format!("MODULE LOAD {}", module_file().display()));
    throttle(&mut client, "key 9 10 36000");
    assert_eq!(must(&mut client, "TYPE key").text(), "resil-gcr", "the command is still ours");
}

#[test]
fn without_compatibility_the_command_does_not_exist() {
    let server = Server::start(Options::default().module_args(["cell-compat", "no"]));
    let text = Client::new(&server).typed("CL.THROTTLE key 9 10 3600").text();
    assert!(text.to_lowercase().contains("unknown command"), "{text}");
}
