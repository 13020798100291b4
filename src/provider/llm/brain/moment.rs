//! A moment of wall time in spoken words. Pure: the moment is handed in.

use super::words::spelled;

const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MONTHS: [&str; 12] =
    ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];

/// The time of day, `minutes` after midnight: `twenty-five past three in the afternoon`.
pub(super) fn time_of_day(minutes: u32) -> String {
    let (hour, minute) = (minutes / 60 % 24, minutes % 60);
    let name = |h: u32| match h % 24 {
        0 => "midnight".to_owned(),
        12 => "noon".to_owned(),
        h => spelled(h % 12),
    };
    let part = |h: u32| match h % 24 {
        0 | 12 => "",
        1..=11 => " in the morning",
        13..=17 => " in the afternoon",
        18..=21 => " in the evening",
        _ => " at night",
    };
    let amount = |m: u32| match m {
        15 => "a quarter".to_owned(),
        5 | 10 | 20 | 25 => spelled(m),
        1 => "one minute".to_owned(),
        _ => format!("{} minutes", spelled(m)),
    };
    match minute {
        0 if hour.is_multiple_of(12) => format!("exactly {}", name(hour)),
        0 => format!("exactly {} o'clock{}", name(hour), part(hour)),
        30 => format!("half past {}{}", name(hour), part(hour)),
        1..=29 => format!("{} past {}{}", amount(minute), name(hour), part(hour)),
        _ => format!("{} to {}{}", amount(60 - minute), name(hour + 1), part(hour + 1)),
    }
}

/// The day, `days` after 1 January 1970: `Monday, the 30th of November, 2026`.
pub(super) fn date(days: i64) -> String {
    // Civil date from a day number: years are counted from 1 March, so that the leap day is the last of its year.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12;
    let year = year_of_era + era * 400 + i64::from(month < 2);
    let ending = match day {
        1 | 21 | 31 => "st",
        2 | 22 => "nd",
        3 | 23 => "rd",
        _ => "th",
    };
    format!("{}, the {day}{ending} of {}, {year}", DAYS[(days + 3).rem_euclid(7) as usize], MONTHS[month as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_as_people_say_them() {
        for (h, m, want) in [
            (0, 0, "exactly midnight"),
            (12, 0, "exactly noon"),
            (9, 0, "exactly nine o'clock in the morning"),
            (15, 25, "twenty-five past three in the afternoon"),
            (18, 30, "half past six in the evening"),
            (11, 45, "a quarter to noon"),
            (23, 59, "one minute to midnight"),
            (22, 7, "seven minutes past ten at night"),
        ] {
            assert_eq!(time_of_day(h * 60 + m), want);
        }
    }

    #[test]
    fn dates_are_right_across_leap_years() {
        assert_eq!(date(0), "Thursday, the 1st of January, 1970");
        assert_eq!(date(11_016), "Tuesday, the 29th of February, 2000");
        assert_eq!(date(11_017), "Wednesday, the 1st of March, 2000");
        assert_eq!(date(20_787), "Monday, the 30th of November, 2026");
        assert_eq!(date(-1), "Wednesday, the 31st of December, 1969");
    }
}
