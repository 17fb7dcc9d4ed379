//! The judge is judged: forged journals are seen through, and honest ones are not.

use crate::journal::{Entry, KILLER, Who, read};
use crate::judge::{Judgement, Wrong, judge};

/// One journal for each text, in milliseconds; the first is the killer's.
fn judged(texts: &[&str]) -> Judgement {
    let journals: Vec<(Who, Vec<Entry>)> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| {
            let mut entries = read(&format!("{text}\n"));
            entries.iter_mut().for_each(|entry| entry.at *= 1_000);
            let who = if index == 0 { KILLER } else { Who { process: index as u32, thread: 0 } };
            (who, entries)
        })
        .collect();
    judge(&journals)
}

#[track_caller]
fn sees(wrong: Wrong, texts: &[&str]) {
    let judgement = judged(texts);
    let found: Vec<Wrong> = judgement.faults.iter().map(|fault| fault.wrong).collect();
    assert_eq!(found, [wrong], "{judgement:#?}");
}

#[track_caller]
fn trusts(texts: &[&str]) {
    judged(texts).must_be_clean();
}

const A_HOLDS: &str = "1 connected
    100 asked acquire k a exclusive 1000 0 free
    110 answered GRANTED 50 1000 0 0";

/// What `b` learns when it asks at `sent` and is granted at `got`.
fn b_gets(claim: &str, fence: u64, sent: i64, got: i64, waited: i64) -> String {
    format!(
        "1 connected
        {sent} asked acquire k b {claim} 1000 2000 free
        {got} answered GRANTED {fence} 1000 {waited} 0"
    )
}

#[test]
fn a_double_grant_is_seen() {
    sees(Wrong::TwoHolders, &["", A_HOLDS, &b_gets("exclusive", 51, 500, 510, 0)]);
    // In the last moment of the lease, counted from the asking.
    sees(Wrong::TwoHolders, &["", A_HOLDS, &b_gets("exclusive", 51, 1_050, 1_090, 0)]);
    trusts(&["", A_HOLDS, &b_gets("exclusive", 51, 500, 1_101, 600)]);
}

#[test]
fn a_double_grant_is_seen_however_late_notified() {
    let late = "1 connected
        500 asked acquire k b exclusive 10 0 free
        600 answered GRANTED 51 10 0 0";
    sees(Wrong::TwoHolders, &["", A_HOLDS, late]);
}

#[test]
fn a_grant_lasts_longer_if_the_server_says_so() {
    let confirmed = |more: &str| format!("{A_HOLDS}\n{more}");
    let renewed = confirmed("900 asked renew k a exclusive 1000 0 free\n910 answered GRANTED 50 1000 0 0");
    sees(Wrong::TwoHolders, &["", &renewed, &b_gets("exclusive", 51, 1_500, 1_510, 0)]);
    trusts(&["", &renewed, &b_gets("exclusive", 51, 1_500, 1_901, 400)]);
    let checked = confirmed("1700 asked check k a exclusive 0 0 free\n1710 answered 1 0 0 0 0");
    sees(Wrong::TwoHolders, &["", &checked, &b_gets("exclusive", 51, 1_500, 1_510, 0)]);
    let released = confirmed("1700 asked release k a exclusive 0 0 free\n1710 answered RELEASED 0 0 0 0");
    sees(Wrong::TwoHolders, &["", &released, &b_gets("exclusive", 51, 1_500, 1_510, 0)]);
    // A renewal that was never answered may have made it shorter.
    let shortened = confirmed("200 asked renew k a exclusive 100 0 free\n250 unanswered closed");
    trusts(&["", &shortened, &b_gets("exclusive", 51, 300, 310, 0)]);
}

#[test]
fn a_grant_ends_when_released_cut_killed_or_broken() {
    let b = b_gets("exclusive", 51, 150, 510, 300);
    let released = format!("{A_HOLDS}\n450 asked release k a exclusive 0 0 free\n480 answered RELEASED 0 0 0 0");
    trusts(&["", &released, &b]);
    // The first RELEASE was not answered: it was heard, or it was not.
    let unheard = format!("{A_HOLDS}\n200 asked release k a exclusive 0 0 free\n210 unanswered closed\n220 connected");
    trusts(&["", &unheard, &b_gets("exclusive", 51, 150, 205, 50)]);
    let renewed = format!("{unheard}\n230 asked renew k a exclusive 1000 0 free\n240 answered GRANTED 50 1000 0 0");
    sees(Wrong::TwoHolders, &["", &renewed, &b_gets("exclusive", 51, 150, 205, 50)]);
    let released = format!("{renewed}\n450 asked release k a exclusive 0 0 free\n460 answered RELEASED 0 0 0 0");
    trusts(&["", &released, &b]);
    let bound = A_HOLDS.replace("free", "bound");
    trusts(&["", &format!("{bound}\n450 cut"), &b]);
    sees(Wrong::TwoHolders, &["", &format!("{A_HOLDS}\n450 cut"), &b]);
    // The server had not noticed yet: a renewal that does not bind it anew changes nothing about its end.
    let late = "450 cut\n455 connected\n460 asked renew k a exclusive 1000 0 free\n465 answered GRANTED 50 1000 0 0";
    trusts(&["", &format!("{bound}\n{late}"), &b]);
    sees(Wrong::TwoHolders, &["", &bound, &b]);
    trusts(&["450 killed 1", &bound, &b]);
    sees(Wrong::TwoHolders, &["450 killed 1", A_HOLDS, &b]);
    trusts(&["440 asked break k - exclusive 0 0 free\n460 answered 1 0 0 0 0", A_HOLDS, &b]);
    // A connection that ended with the server frees nothing: the lease is in the file.
    let outage = "440 server-killed\n470 server-back";
    let closed =
        format!("{bound}\n430 asked check k a exclusive 0 0 free\n445 unanswered closed\n475 connected\n480 cut");
    sees(Wrong::TwoHolders, &[outage, &closed, &b]);
}

#[test]
fn a_reader_beside_a_writer_is_seen() {
    sees(Wrong::ReaderBesideWriter, &["", A_HOLDS, &b_gets("shared", 51, 500, 510, 0)]);
    let reader = A_HOLDS.replace("exclusive", "shared");
    sees(Wrong::ReaderBesideWriter, &["", &reader, &b_gets("exclusive", 51, 500, 510, 0)]);
    trusts(&["", &reader, &b_gets("shared", 51, 500, 510, 0)]);
}

#[test]
fn a_fence_that_goes_back_or_stands_is_seen() {
    let after = |fence: u64| b_gets("exclusive", fence, 1_500, 1_510, 0);
    sees(Wrong::FenceNotAbove, &["", A_HOLDS, &after(49)]);
    trusts(&["", A_HOLDS, &after(51)]);
    let same = judged(&["", A_HOLDS, &after(50)]);
    assert!(same.faults.iter().all(|fault| fault.wrong == Wrong::FenceNotAbove) && !same.faults.is_empty(), "{same:?}");
    // Readers whose grants could have been made in either order prove nothing.
    let reader = A_HOLDS.replace("exclusive", "shared");
    trusts(&["", &reader, &b_gets("shared", 49, 90, 120, 0)]);
    // Who waited was granted late, though it asked early.
    sees(Wrong::FenceNotAbove, &["", &reader, &b_gets("shared", 49, 90, 320, 200)]);
}

#[test]
fn too_many_permits_are_seen() {
    let enters = |owner: &str, sent: i64| {
        format!(
            "1 connected
            {sent} asked acquire k {owner} 2 1000 0 free
            {} answered GRANTED 0 1000 0 2",
            sent + 10
        )
    };
    trusts(&["", &enters("a", 100), &enters("b", 200), &enters("c", 1_111)]);
    sees(Wrong::TooManyPermits, &["", &enters("a", 100), &enters("b", 200), &enters("c", 300)]);
    // The server's own count, too.
    sees(Wrong::TooManyPermits, &["", &enters("a", 100).replace(" 0 2", " 0 3")]);
}

#[test]
fn a_lost_grant_is_seen() {
    let outage = "440 server-killed\n470 server-back";
    let checked = |at: i64, verdict: &str| {
        format!("{A_HOLDS}\n{at} asked check k a exclusive 0 0 free\n{} answered {verdict} 0 0 0 0", at + 10)
    };
    trusts(&[outage, &checked(500, "1")]);
    assert_eq!(judged(&[outage, &checked(500, "1")]).survived, 1);
    sees(Wrong::GrantLost, &[outage, &checked(500, "0")]);
    trusts(&[outage, &checked(1_100, "0")]);
    let renewed = "500 asked renew k a exclusive 1000 0 free\n510 answered LOST 0 0 0 0";
    sees(Wrong::GrantLost, &[outage, &format!("{A_HOLDS}\n{renewed}")]);
    // Asked again while it holds: the same grant, not another one.
    let again = "500 asked acquire k a exclusive 1000 0 free\n510 answered GRANTED 50 1000 0 0";
    trusts(&["", &format!("{A_HOLDS}\n{again}")]);
    let another = again.replace("GRANTED 50", "GRANTED 60");
    let judgement = judged(&["", &format!("{A_HOLDS}\n{another}")]);
    assert_eq!(judgement.faults.first().map(|fault| fault.wrong), Some(Wrong::GrantLost), "{judgement:#?}");
}

#[test]
fn a_stuck_waiter_is_seen() {
    let asks = "1 connected\n100 asked acquire k a exclusive 1000 500 free";
    sees(Wrong::Stuck, &["", asks]);
    trusts(&["300 killed 1", asks]);
    sees(Wrong::Stuck, &["", &format!("{asks}\n2601 unanswered stuck")]);
    sees(Wrong::Stuck, &["", &format!("{asks}\n2800 answered TIMEOUT 0 0 0 0")]);
    trusts(&["", &format!("{asks}\n2500 answered TIMEOUT 0 0 0 0")]);
    trusts(&["200 paused 1\n2700 resumed 1", &format!("{asks}\n2800 answered TIMEOUT 0 0 0 0")]);
    trusts(&["", &format!("{asks}\n200 unanswered closed")]);
}
