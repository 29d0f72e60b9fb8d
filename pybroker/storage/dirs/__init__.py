"""Log dirs, and the directories in them: what lies there, how full they are, copies, removals and strays."""
