//! Locks and bulkheads: who holds, who waits, and breaking a lock.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use resil::lock::Info;
use serde_json::{Value, json};

use super::acts::{Actor, Asked, Because, Body, Looker, Segments};
use super::circuits::RowsAsked;
use super::{Reply, rows};
use crate::roles::Role;
use crate::run::Gateway;

pub async fn locks(State(gateway): State<Arc<Gateway>>, _: Looker, Asked(asked): Asked<RowsAsked>) -> Reply {
    let found = gateway.client.operator().locks(&asked.filter()).await?;
    Ok(Json(json!({ "locks": rows(&found) })))
}

pub async fn bulkheads(State(gateway): State<Arc<Gateway>>, _: Looker, Asked(asked): Asked<RowsAsked>) -> Reply {
    let found = gateway.client.operator().bulkheads(&asked.filter()).await?;
    Ok(Json(json!({ "bulkheads": rows(&found) })))
}

fn held(key: &str, info: &Info) -> Value {
    let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let holders: Vec<Value> = info
        .holders
        .iter()
        .map(|holder| {
            json!({"owner": holder.owner, "fence": holder.fence, "heldMs": ms(holder.held), "remainingMs": ms(holder.remaining),
                "mode": holder.mode, "meta": holder.meta, "isBound": holder.is_bound})
        })
        .collect();
    let waiters: Vec<Value> = info
        .waiters
        .iter()
        .map(|waiter| {
            json!({"owner": waiter.owner, "mode": waiter.mode, "priority": waiter.priority, "waitedMs": ms(waiter.waited)})
        })
        .collect();
    json!({"key": key, "exists": info.exists, "holders": holders, "holdersTotal": info.holders_total, "waiters": waiters,
        "waitersTotal": info.waiters_total, "lastFence": info.last_fence})
}

pub async fn lock(State(gateway): State<Arc<Gateway>>, _: Looker, Segments(key): Segments<String>) -> Reply {
    let info = gateway.client.operator().lock(key.as_bytes()).await?;
    Ok(Json(held(&key, &info)))
}

pub async fn bulkhead(State(gateway): State<Arc<Gateway>>, _: Looker, Segments(key): Segments<String>) -> Reply {
    let info = gateway.client.operator().bulkhead(key.as_bytes()).await?;
    Ok(Json(held(&key, &info)))
}

pub async fn break_lock(
    State(gateway): State<Arc<Gateway>>,
    actor: Actor,
    Segments(key): Segments<String>,
    Body(because): Body<Because>,
) -> Reply {
    actor.must(&gateway, Role::Operate, "lock.break", &key)?;
    because.check()?;
    let broken = gateway.client.operator().break_lock(key.as_bytes(), &because.actor, &because.reason).await?;
    let action = format!("taken from {broken} holders: {}", because.reason);
    actor.done(&gateway, "lock.break", &key, &action, &because.actor);
    Ok(Json(json!({ "broken": broken })))
}
