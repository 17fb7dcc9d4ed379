//! Compiles the service definition. The compiler of protocol buffers is a library here: nothing has to be installed.

use std::path::PathBuf;

use prost::Message;

const PROTO: &str = "proto/resil/v1/resilience_service.proto";
/// The upstream of the demo and of tests.
const ECHO: &str = "proto/resil/example/v1/echo_service.proto";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    println!("cargo::rerun-if-changed=web/dist");
    let descriptors = protox::compile([PROTO, ECHO], ["proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
