//! The size of a JPEG, read from its frame header: what the browser says it sent is checked, not believed.

/// Width and height in pixels. `None`: not a JPEG, or one without a frame header.
pub(crate) fn size(jpeg: &[u8]) -> Option<(u32, u32)> {
    let mut rest = jpeg.strip_prefix(&[0xFF, 0xD8])?;
    loop {
        let [0xFF, marker, after @ ..] = rest else { return None };
        match marker {
            // Fill bytes.
            0xFF => rest = &rest[1..],
            // Markers without a segment.
            0x01 | 0xD0..=0xD7 => rest = after,
            // End, or picture data, before any frame header.
            0xD9 | 0xDA => return None,
            // Start of frame: length, precision, height, width.
            0xC0..=0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF => {
                let [_, _, _, h1, h2, w1, w2, ..] = after else { return None };
                let read = |high: u8, low: u8| u32::from(u16::from_be_bytes([high, low]));
                let (width, height) = (read(*w1, *w2), read(*h1, *h2));
                return (width > 0 && height > 0).then_some((width, height));
            }
            _ => {
                let [high, low, ..] = after else { return None };
                rest = after.get(usize::from(u16::from_be_bytes([*high, *low])).max(2)..)?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_found_behind_other_segments() {
        let header = [0xFF, 0xD8, 0xFF, 0xE0, 0, 4, 1, 2, 0xFF, 0xFF, 0xC0, 0, 11, 8, 0x02, 0xD0, 0x05, 0x00, 3];
        assert_eq!(size(&header), Some((1280, 720)));
        for end in 0..header.len() - 1 {
            assert_eq!(size(&header[..end]), None, "{end}");
        }
    }

    #[test]
    fn other_things_have_no_size() {
        for other in
            [&b""[..], b"GIF89a", &[0xFF, 0xD8, 0xFF, 0xDA, 0, 2], &[0xFF, 0xD8, 0xFF, 0xE0, 0, 0, 0, 0], &[0xFF, 0xD8, 0, 0]]
        {
            assert_eq!(size(other), None, "{other:?}");
        }
    }
}
