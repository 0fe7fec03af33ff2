//! The grammar of keys: modifiers joined by `+`, then one key (browser.md 1.5, A9).

use super::InvalidArguments;
use crate::words;

words! {
    /// Keys with a name of their own.
    pub enum NamedKey {
        /// Deletes before the caret.
        Backspace = "Backspace",
        /// Deletes after it.
        Delete = "Delete",
        /// Line start.
        Home = "Home",
        /// Line end.
        End = "End",
        /// Up a page.
        PageUp = "PageUp",
        /// Down a page.
        PageDown = "PageDown",
        /// Closes things.
        Escape = "Escape",
        /// Next field.
        Tab = "Tab",
        /// Submits, or a new line.
        Enter = "Enter",
        /// Left.
        ArrowLeft = "ArrowLeft",
        /// Right.
        ArrowRight = "ArrowRight",
        /// Up.
        ArrowUp = "ArrowUp",
        /// Down.
        ArrowDown = "ArrowDown",
        /// A blank.
        Space = "Space",
        /// Toggles overwriting.
        Insert = "Insert",
    }
}

/// The key of a chord.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// One printable ASCII character, letters in the case they were written.
    Character(char),
    /// F1 to F24.
    Function(u8),
    /// A named one.
    Named(NamedKey),
}

/// One key with the modifiers held around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "four keys that are each down or not")]
pub struct Chord {
    /// Control.
    pub control: bool,
    /// Alt.
    pub alt: bool,
    /// Shift.
    pub shift: bool,
    /// Meta.
    pub meta: bool,
    /// The key itself.
    pub key: Key,
}

impl Chord {
    /// Reads `Control+Shift+a`, `Enter`, `+`. Names ignore case; a modifier may stand once.
    pub fn parse(text: &str) -> Result<Self, InvalidArguments> {
        let mut chord = Self { control: false, alt: false, shift: false, meta: false, key: Key::Character(' ') };
        let mut rest = text;
        while let Some((word, after)) = rest.split_once('+') {
            if word.is_empty() || after.is_empty() {
                break;
            }
            let held = match word.to_ascii_lowercase().as_str() {
                "control" | "ctrl" => &mut chord.control,
                "alt" | "option" => &mut chord.alt,
                "shift" => &mut chord.shift,
                "meta" | "command" | "cmd" => &mut chord.meta,
                _ => return Err(unknown(text)),
            };
            if std::mem::replace(held, true) {
                return Err(InvalidArguments::because("A modifier may stand only once in `key`."));
            }
            rest = after;
        }
        chord.key = key(rest).ok_or_else(|| unknown(text))?;
        Ok(chord)
    }
}

fn key(word: &str) -> Option<Key> {
    let mut characters = word.chars();
    if let (Some(only), None) = (characters.next(), characters.next()) {
        return match only {
            ' ' => Some(Key::Named(NamedKey::Space)),
            '!'..='~' => Some(Key::Character(only)),
            _ => None,
        };
    }
    if let Some(number) = word.strip_prefix(['F', 'f']).and_then(|digits| digits.parse::<u8>().ok())
        && (1..=24).contains(&number)
        && !word[1..].starts_with(['0', '+'])
    {
        return Some(Key::Function(number));
    }
    NamedKey::ALL.iter().copied().find(|named| named.as_str().eq_ignore_ascii_case(word)).map(Key::Named)
}

fn unknown(text: &str) -> InvalidArguments {
    let shown: String = text.chars().filter(|c| !c.is_control()).take(40).collect();
    InvalidArguments::because(format!(
        "`{shown}` is not a key. Send one key (a character, F1 to F24, Enter, Tab, Escape, Backspace, Delete, Insert, Space, Home, \
         End, PageUp, PageDown, ArrowLeft, ArrowRight, ArrowUp, ArrowDown), with Control, Alt, Shift or Meta in front joined by `+`."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chords_are_read_and_nothing_else() {
        let plain = |key| Chord { control: false, alt: false, shift: false, meta: false, key };
        assert_eq!(Chord::parse("Enter"), Ok(plain(Key::Named(NamedKey::Enter))));
        assert_eq!(Chord::parse("enter"), Ok(plain(Key::Named(NamedKey::Enter))));
        assert_eq!(Chord::parse("a"), Ok(plain(Key::Character('a'))));
        assert_eq!(Chord::parse("+"), Ok(plain(Key::Character('+'))));
        assert_eq!(Chord::parse("F24"), Ok(plain(Key::Function(24))));
        assert_eq!(Chord::parse("F"), Ok(plain(Key::Character('F'))));
        assert_eq!(
            Chord::parse("ctrl+Option+SHIFT+Cmd+Delete"),
            Ok(Chord { control: true, alt: true, shift: true, meta: true, key: Key::Named(NamedKey::Delete) })
        );
        assert_eq!(Chord::parse("Control++"), Ok(Chord { control: true, ..plain(Key::Character('+')) }));
        for wrong in
            ["", "Control+", "Control", "Ctrl+Control+a", "F0", "F25", "F01", "F+1", "é", "ab", "Control+ab", "a+b", "\u{1}"]
        {
            assert!(Chord::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
