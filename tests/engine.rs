//! The engine as its users see it, on tokio's paused time: real ring, fence, pump and machine; scripted providers; a far end that
//! plays, mutes and reports like the browser page. Names begin with the row of the interruption cases they cover.

#[path = "engine/bench.rs"]
mod bench;
#[path = "engine/doubt.rs"]
mod doubt;
#[path = "engine/ends.rs"]
mod ends;
#[path = "engine/full.rs"]
mod full;
#[path = "engine/interrupted.rs"]
mod interrupted;
#[path = "engine/late.rs"]
mod late;
#[path = "engine/steer.rs"]
mod steer;
#[path = "engine/talk.rs"]
mod talk;
#[path = "engine/tools.rs"]
mod tools;
#[path = "engine/world.rs"]
mod world;
