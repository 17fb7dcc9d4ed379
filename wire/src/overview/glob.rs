//! Patterns as KEYS and SCAN have them: `*`, `?`, `[abc]`, `[^a]`, `[a-z]`, and a backslash before a character that means itself.
//!
//! Only the last star is gone back to, and a comparison that takes too many steps ends as "no": a long name under a tricky pattern
//! cannot hold the server.

/// Steps that one comparison may take. A byte of a class is one, too.
const STEPS_MAX: usize = 65_536;

/// Whether all of `text` is as `pattern` says.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut seen) = (0, 0);
    // Behind the last star, and how much of the text it has eaten.
    let mut star: Option<(usize, usize)> = None;
    let mut steps = 0;
    while steps < STEPS_MAX {
        steps += 1;
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            if at == pattern.len() {
                return true;
            }
            star = Some((at, seen));
            continue;
        }
        let Some(byte) = text.get(seen) else { return at == pattern.len() };
        let (is_it, length) = one(pattern.get(at..).unwrap_or_default(), *byte);
        steps += length;
        match is_it {
            true => (at, seen) = (at + length, seen + 1),
            false => match &mut star {
                Some((behind, eaten)) => {
                    *eaten += 1;
                    (at, seen) = (*behind, *eaten);
                }
                None => return false,
            },
        }
    }
    false
}

/// Whether the first part of the pattern stands for `byte`, and how long that part is.
fn one(pattern: &[u8], byte: u8) -> (bool, usize) {
    match pattern {
        [b'?', ..] => (true, 1),
        [b'[', class @ ..] => of_class(class, byte),
        [b'\\', literal, ..] => (*literal == byte, 2),
        [literal, ..] => (*literal == byte, 1),
        [] => (false, 0),
    }
}

/// A class without its bracket. One that is never closed ends with the pattern.
fn of_class(class: &[u8], byte: u8) -> (bool, usize) {
    let is_negated = class.first() == Some(&b'^');
    let (mut at, mut is_in) = (usize::from(is_negated), false);
    loop {
        match class.get(at..).unwrap_or_default() {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', literal, ..] => {
                is_in |= *literal == byte;
                at += 2;
            }
            [from, b'-', to, ..] => {
                is_in |= (*from.min(to)..=*from.max(to)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                is_in |= *literal == byte;
                at += 1;
            }
        }
    }
    (is_in != is_negated, 1 + at)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_mean_what_scan_takes_them_for() {
        for (pattern, text, wanted) in [
            ("*", "", true),
            ("*", "anything", true),
            ("", "", true),
            ("", "a", false),
            ("resil:*", "resil:breaker:{a}", true),
            ("resil:*", "other", false),
            ("*:{a}", "resil:breaker:{a}", true),
            ("a*b*c", "aXXbYYc", true),
            ("a*b*c", "aXXbYY", false),
            ("a*bc", "abbc", true),
            ("?", "a", true),
            ("?", "", false),
            ("[abc]x", "bx", true),
            ("[^abc]x", "bx", false),
            ("[a-f]x", "ex", true),
            ("[f-a]x", "ex", true),
            ("[a-f]x", "gx", false),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("[\\]]", "]", true),
            ("[a", "a", true),
            ("a\\", "a\\", true),
            ("**a**", "bab", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), wanted, "{pattern} {text}");
        }
    }

    #[test]
    fn no_pattern_takes_long() {
        let text = "a".repeat(1 << 20);
        for pattern in [format!("{}b", "*a".repeat(200)), format!("*[{}]b", "c".repeat(400)), "*".repeat(500) + "b"] {
            let began = std::time::Instant::now();
            assert!(!matches(pattern.as_bytes(), text.as_bytes()));
            assert!(began.elapsed().as_millis() < 20, "{pattern}: {:?}", began.elapsed());
        }
    }
}
