//! What a key is to the browser: the fields of `Input.dispatchKeyEvent` for a US keyboard.
//!
//! Editing keys do nothing without their virtual key code, Enter submits only with its text, and a chord inserts no character.

use formation_core::arguments::{Chord, Key, NamedKey};

use crate::cdp::KeyEvent;

/// CDP's modifier bits.
const ALT: u8 = 1;
const CONTROL: u8 = 2;
const META: u8 = 4;
const SHIFT: u8 = 8;

/// `KeyboardEvent.location` of the left modifier keys.
const LEFT: u8 = 1;

/// One key as events describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyStroke {
    key: String,
    code: String,
    virtual_key: u16,
    /// What it inserts, where it inserts something.
    text: Option<String>,
    location: u8,
    /// Held while this one goes down or up.
    modifiers: u8,
}

/// Going down or up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Down,
    Up,
}

impl KeyStroke {
    /// As a command.
    pub(crate) fn event(&self, way: Way) -> KeyEvent<'_> {
        let text = self.text.as_deref().filter(|_| way == Way::Down);
        KeyEvent {
            kind: match (way, text) {
                (Way::Up, _) => "keyUp",
                (Way::Down, Some(_)) => "keyDown",
                (Way::Down, None) => "rawKeyDown",
            },
            key: &self.key,
            code: &self.code,
            windows_virtual_key_code: self.virtual_key,
            modifiers: self.modifiers,
            location: self.location,
            text,
        }
    }
}

/// Every event of a chord, in order: modifiers down, the key down and up, modifiers up.
pub(crate) fn strokes(chord: Chord) -> Vec<(KeyStroke, Way)> {
    let held: Vec<(&str, &str, u16, u8)> = [
        (chord.control, ("Control", "ControlLeft", 17, CONTROL)),
        (chord.alt, ("Alt", "AltLeft", 18, ALT)),
        (chord.shift, ("Shift", "ShiftLeft", 16, SHIFT)),
        (chord.meta, ("Meta", "MetaLeft", 91, META)),
    ]
    .into_iter()
    .filter_map(|(is_held, modifier)| is_held.then_some(modifier))
    .collect();
    let modifier = |&(key, code, virtual_key, _): &(&str, &str, u16, u8), modifiers| KeyStroke {
        key: key.to_owned(),
        code: code.to_owned(),
        virtual_key,
        text: None,
        location: LEFT,
        modifiers,
    };
    let mut events = Vec::new();
    let mut bits = 0;
    for held in &held {
        bits |= held.3;
        events.push((modifier(held, bits), Way::Down));
    }
    let key = KeyStroke { modifiers: bits, ..stroke(chord) };
    events.push((key.clone(), Way::Down));
    events.push((key, Way::Up));
    for held in held.iter().rev() {
        bits &= !held.3;
        events.push((modifier(held, bits), Way::Up));
    }
    events
}

/// The key that empties a selection.
pub(crate) fn backspace() -> KeyStroke {
    named(NamedKey::Backspace)
}

fn stroke(chord: Chord) -> KeyStroke {
    let mut stroke = match chord.key {
        Key::Character(character) => character_stroke(character, chord.shift),
        Key::Function(number) => plain(&format!("F{number}"), &format!("F{number}"), 111 + u16::from(number), None),
        Key::Named(name) => named(name),
    };
    if chord.control || chord.alt || chord.meta {
        stroke.text = None;
    }
    stroke
}

fn plain(key: &str, code: &str, virtual_key: u16, text: Option<&str>) -> KeyStroke {
    KeyStroke { key: key.to_owned(), code: code.to_owned(), virtual_key, text: text.map(str::to_owned), location: 0, modifiers: 0 }
}

fn named(name: NamedKey) -> KeyStroke {
    let word = name.as_str();
    match name {
        NamedKey::Backspace => plain(word, word, 8, None),
        NamedKey::Tab => plain(word, word, 9, None),
        NamedKey::Enter => plain(word, word, 13, Some("\r")),
        NamedKey::Escape => plain(word, word, 27, None),
        NamedKey::Space => plain(" ", word, 32, Some(" ")),
        NamedKey::PageUp => plain(word, word, 33, None),
        NamedKey::PageDown => plain(word, word, 34, None),
        NamedKey::End => plain(word, word, 35, None),
        NamedKey::Home => plain(word, word, 36, None),
        NamedKey::ArrowLeft => plain(word, word, 37, None),
        NamedKey::ArrowUp => plain(word, word, 38, None),
        NamedKey::ArrowRight => plain(word, word, 39, None),
        NamedKey::ArrowDown => plain(word, word, 40, None),
        NamedKey::Insert => plain(word, word, 45, None),
        NamedKey::Delete => plain(word, word, 46, None),
    }
}

/// Keys that are neither letters nor digits: the character, the one with Shift, code and virtual key.
const PUNCTUATION: &[(char, char, &str, u16)] = &[
    (';', ':', "Semicolon", 186),
    ('=', '+', "Equal", 187),
    (',', '<', "Comma", 188),
    ('-', '_', "Minus", 189),
    ('.', '>', "Period", 190),
    ('/', '?', "Slash", 191),
    ('`', '~', "Backquote", 192),
    ('[', '{', "BracketLeft", 219),
    ('\\', '|', "Backslash", 220),
    (']', '}', "BracketRight", 221),
    ('\'', '"', "Quote", 222),
];

/// What Shift makes of 0 to 9.
const SHIFTED_DIGITS: &str = ")!@#$%^&*(";

fn character_stroke(character: char, shift: bool) -> KeyStroke {
    if character.is_ascii_alphabetic() {
        let upper = character.to_ascii_uppercase();
        let shown = if shift { upper } else { character }.to_string();
        return plain(&shown, &format!("Key{upper}"), u16::from(upper as u8), Some(&shown));
    }
    let digit =
        character.to_digit(10).or_else(|| (0u32..).zip(SHIFTED_DIGITS.chars()).find(|(_, c)| *c == character).map(|(n, _)| n));
    if let Some((digit, upper)) = digit.and_then(|digit| Some((digit, SHIFTED_DIGITS.chars().nth(digit as usize)?))) {
        let shown = if shift { upper } else { character }.to_string();
        let virtual_key = 48 + u16::try_from(digit).unwrap_or(0);
        return plain(&shown, &format!("Digit{digit}"), virtual_key, Some(&shown));
    }
    for (lower, upper, code, virtual_key) in PUNCTUATION {
        if character == *lower || character == *upper {
            let shown = if shift { *upper } else { character }.to_string();
            return plain(&shown, code, *virtual_key, Some(&shown));
        }
    }
    let shown = character.to_string();
    plain(&shown, "", 0, Some(&shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<String> {
        let chord = Chord::parse(text).expect("a chord");
        strokes(chord)
            .iter()
            .map(|(stroke, way)| {
                let event = stroke.event(*way);
                format!(
                    "{} {} {} {} {} {:?}",
                    event.kind, event.key, event.code, event.windows_virtual_key_code, event.modifiers, event.text
                )
            })
            .collect()
    }

    #[test]
    fn a_plain_key_goes_down_and_up() {
        assert_eq!(told("a"), [r#"keyDown a KeyA 65 0 Some("a")"#, "keyUp a KeyA 65 0 None"]);
        assert_eq!(told("Enter")[0], r#"keyDown Enter Enter 13 0 Some("\r")"#);
        assert_eq!(told("Backspace")[0], "rawKeyDown Backspace Backspace 8 0 None");
        assert_eq!(told("F12")[0], "rawKeyDown F12 F12 123 0 None");
        assert_eq!(told("+")[0], r#"keyDown + Equal 187 0 Some("+")"#);
        assert_eq!(told("%")[0], r#"keyDown % Digit5 53 0 Some("%")"#);
        assert_eq!(told("Space")[0], r#"keyDown   Space 32 0 Some(" ")"#);
    }

    #[test]
    fn a_chord_holds_its_modifiers_around_the_key_and_inserts_nothing() {
        assert_eq!(
            told("Control+Shift+a"),
            [
                "rawKeyDown Control ControlLeft 17 2 None",
                "rawKeyDown Shift ShiftLeft 16 10 None",
                "rawKeyDown A KeyA 65 10 None",
                "keyUp A KeyA 65 10 None",
                "keyUp Shift ShiftLeft 16 2 None",
                "keyUp Control ControlLeft 17 0 None",
            ]
        );
        assert_eq!(told("Shift+1")[1], r#"keyDown ! Digit1 49 8 Some("!")"#);
        assert_eq!(told("Meta+,")[1], "rawKeyDown , Comma 188 4 None");
    }
}
