from django.db import migrations

# A saturated pass counts up every wait and moves every place in the queue. Where a page has room for the new version of
# a row, PostgreSQL writes no index, and takes the room of the old one the next time.
TABLES = ("compute_schedulingrecord", "compute_computesession")


def leave_room(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        for table in TABLES:
            schema_editor.execute(f"ALTER TABLE {table} SET (fillfactor = 70)")


def fill_up(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        for table in TABLES:
            schema_editor.execute(f"ALTER TABLE {table} RESET (fillfactor)")


class Migration(migrations.Migration):
    dependencies = [("compute", "0007_lean_indexes")]

    operations = [migrations.RunPython(leave_room, fill_up)]
