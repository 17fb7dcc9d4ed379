//! What every refusal looks like, of any command.

use resil_wire::Refused;

/// One line of printable ASCII shorter than `len_max`, with an error code in front, that says each of `parts`.
#[track_caller]
pub fn check(line: &str, refused: &Refused, len_max: usize, parts: &[&str]) {
    assert!(is_presentable(refused, len_max), "{line}: {refused}");
    for part in parts {
        assert!(refused.text().contains(part), "{line}: {refused:?} does not say {part:?}");
    }
}

pub fn is_presentable(refused: &Refused, len_max: usize) -> bool {
    let text = refused.text();
    text.starts_with("ERR ") && text.len() < len_max && text.bytes().all(|byte| (0x20..0x7f).contains(&byte))
}
