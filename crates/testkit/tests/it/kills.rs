//! one kill -9 at each point of each operation. The long set is `examples/kills.rs`.

use std::path::Path;

use formation_testkit::{
    databases::{Backend, TestDb, run},
    kill::{Operation, Point, Scene},
};

use crate::BINARY;

async fn kill(db: TestDb, operation: Operation, point: Point) {
    let scene = Scene::set(db, Path::new(BINARY)).await.expect("the scene can be set");
    if let Err(error) = scene.kill(operation, point, "k-1").await {
        panic!("{error:#}\n{}", scene.place.logs());
    }
}

/// Every point of each operation, on the backends that follow it.
macro_rules! kills {
    ($($name:ident: $operation:ident $point:ident on $($backend:ident)+;)+) => {$(
        mod $name {
            $(
                #[test]
                fn $backend() {
                    super::run(super::backend(stringify!($backend)), |db| {
                        super::kill(db, super::Operation::$operation, super::Point::$point)
                    });
                }
            )+
        }
    )+};
}

fn backend(name: &str) -> Backend {
    if name == "sqlite" { Backend::Sqlite } else { Backend::Postgres }
}

kills! {
    bar_r01_search_before_admission: Search BeforeAdmission on sqlite;
    bar_r01_search_in_admission: Search InAdmission on sqlite postgres;
    bar_r01_search_before_send: Search BeforeSend on sqlite;
    bar_r01_search_mid_send: Search MidSend on sqlite;
    bar_r01_search_without_a_reply: Search NoReply on sqlite postgres;
    bar_r01_search_before_its_end_is_written: Search BeforeSettle on sqlite;
    bar_r01_search_before_its_answer: Search AfterSettle on sqlite postgres;
    bar_r01_navigate_before_admission: Navigate BeforeAdmission on sqlite;
    bar_r01_navigate_in_admission: Navigate InAdmission on sqlite postgres;
    bar_r01_navigate_before_send: Navigate BeforeSend on sqlite postgres;
    bar_r01_navigate_mid_send: Navigate MidSend on sqlite;
    bar_r01_navigate_without_a_reply: Navigate NoReply on sqlite;
    bar_r01_navigate_before_its_end_is_written: Navigate BeforeSettle on sqlite postgres;
    bar_r01_navigate_before_its_answer: Navigate AfterSettle on sqlite;
    bar_r01_click_before_admission: Click BeforeAdmission on sqlite postgres;
    bar_r01_click_in_admission: Click InAdmission on sqlite;
    bar_r01_click_before_send: Click BeforeSend on sqlite;
    bar_r01_click_mid_send: Click MidSend on sqlite postgres;
    bar_r01_click_without_a_reply: Click NoReply on sqlite;
    bar_r01_click_before_its_end_is_written: Click BeforeSettle on sqlite;
    bar_r01_click_before_its_answer: Click AfterSettle on sqlite postgres;
}
