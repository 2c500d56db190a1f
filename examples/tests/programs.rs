//! The programs run, and do what they say.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn ledger() {
    let text = output_of(env!("CARGO_BIN_EXE_ledger"), &["2", "4000"]);
    assert!(text.contains("transfers a second on 2 threads"), "{text}");
    assert!(text.contains("the books balance"), "{text}");
}

#[test]
fn jobs() {
    for how in [&["3", "1000"][..], &["2", "1000", "first"]] {
        let text = output_of(env!("CARGO_BIN_EXE_jobs"), how);
        assert!(text.contains("990 done, 10 given up after 3 tries"), "{text}");
    }
}

/// A shop that ends with the test.
struct Shop {
    process: Child,
    address: String,
}

impl Drop for Shop {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Shop {
    fn open() -> Self {
        let mut process =
            Command::new(env!("CARGO_BIN_EXE_shop")).stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().expect("it is piped")).read_line(&mut line).expect("it says where");
        let address = line.trim().strip_prefix("listening on ").expect("it says where").to_owned();
        Self { process, address }
    }

    /// The status and the body of an answer.
    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).expect("the shop listens");
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        )
        .expect("the shop reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the shop answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("an answer has a status");
        (status, body.to_owned())
    }
}

#[test]
fn shop() {
    let shop = Shop::open();
    let buy = |customer: u32, item: u32, quantity: u32| {
        let body = format!(r#"{{"customer":{customer},"item":{item},"quantity":{quantity}}}"#);
        shop.ask("POST", "/orders", &body)
    };
    let (status, order) = buy(1, 2, 3);
    assert_eq!((status, order.as_str()), (200, r#"{"customer":1,"number":1,"item":2,"quantity":3,"paid_cents":3750}"#));
    assert_eq!(buy(1, 2, 3), (409, "2 of item 2 are left".to_owned()));
    assert_eq!(buy(1, 9, 1), (404, "there is no item 9".to_owned()));
    assert_eq!(buy(1, 3, 2).0, 200);
    let (_, orders) = shop.ask("GET", "/orders/1", "");
    assert!(orders.contains(r#""number":2"#) && !orders.contains(r#""number":3"#), "{orders}");
    let (_, items) = shop.ask("GET", "/items", "");
    assert!(items.contains(r#"{"id":2,"name":"gear","price_cents":1250,"stock":2}"#), "{items}");
    assert_eq!(shop.ask("GET", "/revenue", "").1, "217.30");
}
