//! The facts that a report must state about the machine of a run.

use serde::Serialize;

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// The processor's name, where the system tells it.
    pub processor: Option<String>,
    /// Hardware threads that this process may use.
    pub cores: usize,
    /// Bytes of memory, where the system tells them.
    pub memory_bytes: Option<u64>,
    /// Operating system and architecture.
    pub system: String,
}

impl Machine {
    /// This machine.
    pub fn this() -> Self {
        let processor = std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        });
        let memory = std::fs::read_to_string("/proc/meminfo").ok();
        Self {
            processor,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory.and_then(|text| kilobytes(&text, "MemTotal:")),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        }
    }
}

/// The most memory this process has had at once, in bytes; known on Linux.
pub fn peak_rss_bytes() -> Option<u64> {
    kilobytes(&std::fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// The memory that this process has now, in bytes; known on Linux.
pub fn rss_bytes() -> Option<u64> {
    kilobytes(&std::fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// Memory that can be taken without pushing something else out, in bytes; known on Linux.
pub fn available_bytes() -> Option<u64> {
    kilobytes(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// The metric of a line like `VmHWM:    1234 kB`, in bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    #[test]
    fn metrics_are_found_by_name() {
        let text = "VmPeak:\t 9 kB\nVmHWM:\t    1234 kB\n";
        assert_eq!(super::kilobytes(text, "VmHWM:"), Some(1234 * 1024));
        assert_eq!(super::kilobytes(text, "VmRSS:"), None);
    }
}
