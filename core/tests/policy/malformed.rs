//! Documents that are refused, each with the path that is named. The table is malformed.txt.

use resil_core::limits::POLICY_BYTES_MAX;
use resil_core::policy::{Document, read};

const TABLE: &str = include_str!("malformed.txt");

#[test]
fn two_hundred_malformed_documents_each_name_their_path() {
    let rows: Vec<Vec<&str>> = TABLE.lines().skip(1).map(|line| line.splitn(3, '\t').collect()).collect();
    assert!(rows.len() >= 200, "{}", rows.len());
    let mut wrong = Vec::new();
    for row in &rows {
        let [path, reason, document] = row[..] else { panic!("a row of the table is not whole: {row:?}") };
        match read(document) {
            Ok(_) => wrong.push(format!("{document} is accepted; {path} {reason}")),
            Err(refused) if refused.path != path || !refused.text.contains(reason) => {
                wrong.push(format!("{document}\n    says   {refused}\n    not    {path} {reason}"));
            }
            Err(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

#[test]
fn a_document_may_have_sixty_four_kilobytes_and_no_more() {
    let fits = format!("{{}}{}", " ".repeat(POLICY_BYTES_MAX - 2));
    assert_eq!(read(&fits), Ok(Document::default()));
    let refused = read(&format!("{fits} ")).expect_err("one more");
    assert_eq!(refused.to_string(), "document must be at most 64 KB, got 65537 bytes");
}
