//! Writes the files of a version for the target `upgrade`: one key of every kind and shape.

use std::fs;
use std::path::Path;

use resil_harness::{Server, ok};
use resil_tests::old_files::{KEYS, Player, Seen, options};

fn main() {
    let folder = std::env::args().nth(1).expect("the folder to write to");
    let folder = Path::new(&folder);
    fs::create_dir_all(folder).expect("the folder can be made");
    let options =
        options().config("appendonly", "yes").config("appendfsync", "always").config("aof-use-rdb-preamble", "no");
    let server = Server::start(options);
    let mut player = Player::on(&server);
    for (commands, _) in KEYS {
        player.permit.clear();
        player.play(commands).expect("every command is known");
    }
    let replies = KEYS.iter().map(|(_, look)| ((*look).to_owned(), player.ask(look).expect("a reply")));
    let replies = replies.collect();
    let keys = match ok(&mut player.connection, &["DBSIZE"]) {
        redis::Value::Int(keys) => keys,
        other => panic!("DBSIZE is a number, not {other:?}"),
    };
    ok(&mut player.connection, &["SAVE"]);
    let seen = Seen { clock_us: player.clock_us(), keys, replies };
    fs::write(folder.join("seen.json"), serde_json::to_vec_pretty(&seen).expect("it can be written"))
        .expect("seen.json");
    fs::copy(server.dir().join("dump.rdb"), folder.join("snapshot.bin")).expect("the snapshot is there");
    let changes = fs::read_dir(server.dir().join("appendonlydir")).expect("the folder of changes is there");
    let changes =
        changes.map(|entry| entry.expect("an entry").path()).find(|path| path.to_string_lossy().contains("incr"));
    fs::copy(changes.expect("a file of changes"), folder.join("changes.bin")).expect("the changes are there");
    println!("{keys} keys in {}", folder.display());
}
