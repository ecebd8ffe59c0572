//! Damage for readers: random numbers, texts with a few changes, and characters that no line of
//! output may have.

/// SplitMix64: small, and the same on every machine.
pub struct Draw(pub u64);

impl Draw {
    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n.max(1) as u64) as usize
    }

    /// True once in so many times.
    pub fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    /// Mostly small, sometimes at an edge.
    pub fn number(&mut self) -> u32 {
        match self.below(24) {
            0 => u32::MAX,
            1 => u32::MAX - 1,
            2 => 1 << 31,
            3 => self.bits() as u32,
            _ => self.below(6) as u32,
        }
    }

    /// At most so many items.
    pub fn list<T>(&mut self, longest: usize, mut item: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(longest + 1)).map(|_| item(self)).collect()
    }

    /// One of the items.
    pub fn one_of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

/// How many inputs a test takes: `AMK_RUNS`, or this many.
pub fn runs(default: usize) -> usize {
    std::env::var("AMK_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(default)
}

/// Changes bytes, numbers, words and lines of a text.
pub fn mutate(text: &str, draw: &mut Draw) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..1 + draw.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = draw.below(bytes.len());
        match draw.below(6) {
            0 => bytes[at] = draw.bits() as u8,
            1 => {
                bytes.remove(at);
            }
            2 => bytes.insert(at, draw.one_of(b"0123456789.,:;[](){}@\"-> \n")),
            3 => {
                let word = draw.one_of(&[
                    "pos",
                    "mut ",
                    "early ",
                    "4294967295",
                    "99999999999999999999",
                    "..",
                    "\"",
                    "@",
                    "nan",
                    "then ",
                ]);
                bytes.splice(at..at, word.bytes());
            }
            4 => {
                let digits: Vec<usize> = (0..bytes.len()).filter(|&n| bytes[n].is_ascii_digit()).collect();
                if !digits.is_empty() {
                    bytes[digits[draw.below(digits.len())]] = b'0' + draw.below(10) as u8;
                }
            }
            _ => {
                let to = draw.below(bytes.len());
                let slice = bytes[at.min(to)..at.max(to)].to_vec();
                let into = draw.below(bytes.len());
                bytes.splice(into..into, slice);
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether a line has no character that ends it, acts on a terminal or is not seen.
pub fn keeps_to_its_line(line: &str) -> bool {
    let acts = |c: char| {
        c.is_control()
            || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}')
            || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
            || matches!(c, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
    };
    !line.contains(acts)
}
