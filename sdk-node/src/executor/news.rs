//! What came in from other threads, as JavaScript is told it: once for all letters.

use std::sync::Arc;

use resil::Failure;

use super::desk::{Desk, Order};
use super::mailbox::{self, Letter};
use super::{Answer, DONE, FAILED, RUN, WAIT, Word, mailbox as own_mailbox, poll, take, take_forgotten, with};
use crate::thrown::Thrown;

/// What JavaScript is to do because of the letters that came.
pub enum News {
    Call { key: u32, orders: Vec<Order>, answer: Option<Answer> },
    Load { key: u32, orders: Vec<Order> },
    Event(u32, mailbox::Event),
    Forget(u32),
}

/// Reads all letters and polls all calls they are about.
pub fn read_letters() -> napi::Result<Vec<News>> {
    let letters = own_mailbox()?.empty();
    let mut news = Vec::with_capacity(letters.len());
    for letter in letters {
        match letter {
            Letter::Poll(key) => {
                let word = poll(key)?;
                if word != WAIT {
                    let (orders, answer) = take_of(key, word)?;
                    news.push(News::Call { key, orders, answer });
                }
            }
            Letter::Orders(desk) => {
                let orders = desk.take_orders().into_vec();
                if orders.is_empty() {
                    continue;
                }
                let key = if desk.key() == u32::MAX { register_load(&desk)? } else { desk.key() };
                if orders.iter().any(|order| matches!(order, Order::Abort(_))) {
                    with(|executor| executor.remove(key))?;
                }
                news.push(News::Load { key, orders });
            }
            Letter::Event(number, event) => news.push(News::Event(number, event)),
            Letter::Forget(number) => news.push(News::Forget(number)),
        }
    }
    news.extend(take_forgotten().into_iter().map(News::Forget));
    Ok(news)
}

fn register_load(desk: &Arc<Desk>) -> napi::Result<u32> {
    with(|executor| {
        let (key, desk) = executor.insert(|_, _| Arc::clone(desk), false);
        desk.set_key(key);
        key
    })
}

/// The same as a word says, spelled out.
fn take_of(key: u32, word: Word) -> napi::Result<(Vec<Order>, Option<Answer>)> {
    let id = word >> 3;
    Ok(match word & 7 {
        RUN => (vec![Order::Start(id, None)], None),
        DONE => (Vec::new(), Some(Answer::Attempt(id))),
        FAILED => (Vec::new(), Some(Answer::Failed(Failure::Inner(Thrown::of_attempt(id))))),
        _ => take(key)?,
    })
}
