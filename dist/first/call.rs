//! A message through a pipe, and a call that a thread answers.

use std::time::Duration;

use pipework::{atomic, reqrep};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const SOON: Duration = Duration::from_secs(5);
    let (mut reader, mut writer) = atomic::pair()?;
    writer.send("whole", SOON)?;
    println!("{}", String::from_utf8_lossy(&reader.recv(SOON)?));

    let channel = reqrep::Options::new().anonymous()?;
    let (client, server) = (channel.client()?, channel.server()?);
    let answering = std::thread::spawn(move || {
        let request = server.recv(SOON)?;
        let answer = request.to_ascii_uppercase();
        request.reply(&answer)
    });
    println!("{}", String::from_utf8_lossy(&client.call("hello", SOON)?));
    answering.join().expect("it does not panic")?;
    Ok(())
}
