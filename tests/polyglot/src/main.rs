//! A worker in Rust: one process of a fleet whose others are written in Python (`worker.py`) and Node (`worker.mjs`).
//!
//! A worker decides nothing. A test tells it by lines of JSON what to ask for; it asks through the public face of its
//! language, says when it is inside, and stays there until it gets the word to go. `N` is a number the test chose.
//!
//! ```text
//! {"ready":"rust"}                                                       once it is connected
//! > {"tag":N,"do":"lock","name":"stock"}                                 {"tag":N,"inside":{"fence":7}}
//! > {"tag":N,"do":"lock","name":"stock","lease_ms":900}
//! > {"tag":N,"do":"bulkhead","name":"reports","max":3}                   {"tag":N,"inside":{}}
//! > {"tag":N,"do":"bulkhead","name":"reports","max":1,"queue":9,"priority":2}
//! > {"tag":N,"do":"breaker","name":"bank","consecutive":5}               {"tag":N,"inside":{}}
//! > {"tag":N,"do":"breaker","name":"bank","consecutive":5,"traceparent":"00-0af7…-01"}
//! > {"tag":N,"do":"said"}                                                 {"tag":N,"done":{"value":{"spans":[…],"logs":[…],"counts":{…}}}}
//! > {"tag":N,"do":"limit","name":"api","key":"user:42"}                   one an hour
//! > {"tag":N,"do":"cached","name":"user","key":"1","codec":"json"}       {"tag":N,"inside":{}}         if it has to load
//! > {"tag":N,"do":"idempotent","name":"pay","key":"1","codec":"bytes","lease_ms":500}  {"tag":N,"inside":{"attempt":1}}
//! > {"tag":N,"do":"fail_letter","name":"orders","id":"1","payload":"AAEC"}  {"tag":N,"done":{"value":"retry"}}
//! > {"tag":N,"do":"take_letter","name":"orders"}                         {"tag":N,"done":{"value":{"id":"1","payload":"AAEC",...}}}
//! > {"tag":N,"word":{"value":"AAEC"}}                                    {"tag":N,"done":{"value":"AAEC"}}
//! > {"tag":N,"word":{"fail":true}}                                       {"tag":N,"failed":"OWN"}      its own error
//!                                                                        {"tag":N,"failed":"CIRCUIT_OPEN"}
//! ```
//!
//! A value is JSON with the codec `json`, and base64 with the codec `bytes`. What is `said` is what the process says about itself, by the tools of
//! its language: spans that ended, lines of its log, and counters as `metric{label=value}`.

mod ask;
mod stage;
mod witness;

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};

use ask::Ask;
use stage::{Stage, Word};
use witness::Witness;

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Word {
        tag: u64,
        word: Word,
    },
    Ask {
        tag: u64,
        #[serde(flatten)]
        ask: Ask,
    },
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("usage: polyglot-worker URL")?;
    let witness = Witness::default();
    witness.install()?;
    let client = resil::connect(&url).await?;
    let stage = Arc::new(Stage::default());
    stage.say(&json!({ "ready": "rust" }));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        match serde_json::from_str(&line)? {
            Line::Word { tag, word } => stage.give(tag, word),
            Line::Ask { tag, ask } => {
                let (client, stage, witness) = (client.clone(), stage.clone(), witness.clone());
                tokio::spawn(async move {
                    let outcome = match ask.perform(&client, &stage, &witness, tag).await {
                        Ok(value) => json!({ "tag": tag, "done": { "value": value } }),
                        Err(code) => json!({ "tag": tag, "failed": code }),
                    };
                    stage.say(&outcome);
                });
            }
        }
    }
    Ok(())
}
