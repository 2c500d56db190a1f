"""Django: migrations, inspectdb, the ORM, flush."""

import io
import sys
from urllib.parse import urlparse

import django
from django.conf import settings
from django.core.management import call_command

url = urlparse(sys.argv[1])
settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions"],
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": url.path[1:], "USER": url.username,
                           "HOST": url.hostname, "PORT": url.port}},
    USE_TZ=True, TIME_ZONE="UTC", DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
)
django.setup()
from django.contrib.auth.models import Group, Permission, User
from django.db import IntegrityError, connection, transaction
from django.db.models import Count, F, Q

call_command("migrate", verbosity=0)
print(sorted(connection.introspection.table_names()))
for number in range(5):
    User.objects.create_user(f"user{number}", f"u{number}@example.org", "secret")
group = Group.objects.create(name="group")
group.user_set.set(User.objects.filter(username__in=["user1", "user2"]))
print(list(User.objects.filter(groups=group).order_by("id").values_list("username", flat=True)))
print(User.objects.filter(Q(username__icontains="USER3") | Q(email__endswith="4@example.org")).count())
print(User.objects.update(first_name=F("username")), User.objects.aggregate(Count("id")))
print(list(Group.objects.annotate(n=Count("user")).values_list("name", "n")))
try:
    with transaction.atomic():
        User.objects.create_user("user1")
except IntegrityError as error:
    print(type(error.__cause__).__name__)
with transaction.atomic():
    user = User.objects.select_for_update().get(username="user0")
    user.last_name = "x"
    user.save()
print(User.objects.bulk_create([User(username=f"bulk{i}") for i in range(3)], ignore_conflicts=True)[0].username)
print(User.objects.get_or_create(username="bulk1")[1], Permission.objects.count())
User.objects.filter(username="user1").delete()
print(Group.objects.annotate(n=Count("user")).get().n)
out = io.StringIO()
call_command("inspectdb", stdout=out)
print(out.getvalue())
call_command("flush", interactive=False, verbosity=0)
print(User.objects.count(), Permission.objects.count())
call_command("migrate", "auth", "zero", verbosity=0)
print(sorted(connection.introspection.table_names()))
